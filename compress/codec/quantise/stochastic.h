// SPDX-License-Identifier: Apache-2.0
// What the codecs that round at random share: where their random numbers come from, and how a norm
// becomes two factors. Thread-safe: all are pure functions.
//
//   const Scaling scaling = LinearScaling(L2Norm(norms.input2, norms.largest), levels);
//   kernels.quantize.start_random(RandomStreamOf(seed, context), block, &random);
#ifndef SLIMPS_COMPRESS_CODEC_QUANTISE_STOCHASTIC_H_
#define SLIMPS_COMPRESS_CODEC_QUANTISE_STOCHASTIC_H_

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

// A norm under this counts as 0, and all levels are then 0. From here up, norms and their quotients
// and products stay normal numbers.
inline constexpr float kSmallestNorm = 0x1p-80f;

// Every |x| up to this decodes to a finite number and leaves a finite error.
inline constexpr float kMaxQuantized = 0x1p127f;

// Reads the option seed. Default: 0.
// InvalidArgument: no integer of 64 bits.
[[nodiscard]] inline absl::StatusOr<uint64_t> SeedOption(const CodecSpec& spec) {
  return UintOption(spec, "seed", 0, std::numeric_limits<uint64_t>::max(), 0);
}

// Returns the stream of compress/format/philox.h in the form that kernels take.
inline RandomStream RandomStreamOf(uint64_t seed, const EncodeContext& context) {
  const PhiloxStream stream =
      PhiloxStream::Of(seed, context.key, context.round, context.worker, context.partition);
  return {stream.key0, stream.key1, stream.round, stream.worker, stream.partition};
}

// Returns the root of the sum of squares `input2`, but at least `largest`, the largest |x|: squares
// may underflow. If the sum overflowed, returns `largest`. Rounding is unbiased with any norm that
// no |x| exceeds.
inline float L2Norm(double input2, float largest) {
  const auto root = static_cast<float>(std::sqrt(input2));
  return std::isfinite(root) && root > largest ? root : largest;
}

// `inverse` turns x into the unit of Rounding (compress/kernels/quantize.h), 2^-16 of the smallest
// level. `scale` turns a level into a number again. Divisions are rounded to fp32.
struct Scaling {
  float inverse = 0;
  float scale = 0;
};

// `inverse` is the fp32 number below the quotient: norm * inverse, rounded, must not exceed the
// largest level.
inline Scaling LinearScaling(float norm, uint32_t levels) {
  if (norm < kSmallestNorm) return {};
  const auto steps = static_cast<float>(levels);
  return {std::nextafter(steps * 0x1p16f / norm, 0.0f), norm / steps};
}

// For levels that are powers of two.
// REQUIRES: levels <= 32.
inline Scaling NaturalScaling(float norm, uint32_t levels) {
  if (norm < kSmallestNorm) return {};
  return {std::ldexp(1.0f, static_cast<int>(levels) + 15) / norm, norm};
}

}  // namespace slimps

#endif  // SLIMPS_COMPRESS_CODEC_QUANTISE_STOCHASTIC_H_
