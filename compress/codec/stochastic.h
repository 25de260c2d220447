// What codecs that round at random share: where their numbers come from, and how a norm becomes two factors.
#ifndef SLIMPS_COMPRESS_CODEC_STOCHASTIC_H_
#define SLIMPS_COMPRESS_CODEC_STOCHASTIC_H_

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>

#include "absl/status/statusor.h"
#include "compress/codec/codec.h"
#include "compress/codec/options.h"
#include "compress/format/philox.h"
#include "compress/kernels/kernels.h"

namespace slimps {

// Norms under this count as 0: all levels are 0. Above, norms, quotients and products of them stay normal numbers.
inline constexpr float kSmallestNorm = 0x1p-80f;
// Any |x| up to this decodes, and leaves an error, that is finite.
inline constexpr float kLargestQuantized = 0x1p127f;

// The option seed.
[[nodiscard]] inline absl::StatusOr<uint64_t> SeedOption(const CodecSpec& spec) {
  return UintOption(spec, "seed", 0, std::numeric_limits<uint64_t>::max(), 0);
}

// The stream of compress/format/philox.h, as kernels take it.
inline RandomStream RandomStreamOf(uint64_t seed, const EncodeContext& context) {
  const PhiloxStream stream =
      PhiloxStream::Of(seed, context.key, context.round, context.worker, context.partition);
  return {stream.key0, stream.key1, stream.round, stream.worker, stream.partition};
}

// The sum of squares under a root, or the largest magnitude where that is more: squares may underflow. It also stands in
// for a sum that overflowed. Rounding is unbiased with any norm that no |x| exceeds.
inline float L2Norm(double input2, float largest) {
  const auto root = static_cast<float>(std::sqrt(input2));
  return std::isfinite(root) && root > largest ? root : largest;
}

// x * inverse is in 2^-16 of the smallest level, as Rounding of compress/kernels/quantize.h takes it; a level times scale
// is a number again. Divisions are rounded to fp32.
struct Scaling {
  float inverse = 0;
  float scale = 0;
};
// The quotient's lower neighbour: norm * inverse, rounded, must not be over the largest level.
inline Scaling LinearScaling(float norm, uint32_t levels) {
  if (norm < kSmallestNorm) return {};
  const auto steps = static_cast<float>(levels);
  return {std::nextafter(steps * 0x1p16f / norm, 0.0f), norm / steps};
}
// REQUIRES: levels <= 32.
inline Scaling NaturalScaling(float norm, uint32_t levels) {
  if (norm < kSmallestNorm) return {};
  return {std::ldexp(1.0f, static_cast<int>(levels) + 15) / norm, norm};
}

}  // namespace slimps

#endif  // SLIMPS_COMPRESS_CODEC_STOCHASTIC_H_
