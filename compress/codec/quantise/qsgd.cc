// SPDX-License-Identifier: Apache-2.0
#include "compress/codec/quantise/qsgd.h"

#include <algorithm>
#include <bit>

#include "absl/strings/str_cat.h"
#include "compress/codec/quantise/levels_codec.h"
#include "compress/codec/quantise/stochastic.h"
#include "compress/kernels/kernels.h"
#include "proto/base/status_macros.h"

namespace slimps {
namespace {

constexpr size_t kDefaultBucket = 512;  // the paper's

enum class Norm { kL2, kMax };

// Thread-safe: constant after construction.
class QsgdCodec final : public LevelsCodec {
 public:
  QsgdCodec(const CodecSpec& spec, const Kernels& kernels, const LevelsLayout& shape,
            ErrorFeedback feedback, Norm norm, uint64_t seed)
      : LevelsCodec(spec, kernels, kMaxQuantized, shape, feedback), norm_(norm), seed_(seed) {}

  BlockSums EncodeBlock(const EncodeInput& input, size_t block,
                        std::span<std::byte> payload) const override {
    const LevelsLayout layout = Layout(input.gradient.size());
    const BlockInput in(input, block);
    RandomLanes random;
    kernels().quantize.start_random(RandomStreamOf(seed_, input.context),
                                    static_cast<uint32_t>(block), &random);
    Rounding rounding = {.grad_scale = input.grad_scale,
                         .levels = layout.packed() ? layout.levels : 1u,
                         .random = &random};
    uint8_t* const out = Plane(layout, payload, block);
    BlockSums sums;
    // `random` runs on from bucket to bucket.
    for (size_t done = 0; done < in.elements; done += layout.bucket) {
      const float* gradient = in.gradient + done;
      float* residual = in.residual == nullptr ? nullptr : in.residual + done;
      const size_t n = std::min(layout.bucket, in.elements - done);
      const InputNorms norms = kernels().quantize.measure(gradient, residual, input.grad_scale, n);
      const float norm = norm_ == Norm::kMax
                             ? norms.largest
                             : L2Norm(static_cast<double>(norms.input2), norms.largest);
      const Scaling scaling = LinearScaling(norm, rounding.levels);
      const size_t first = block * kBlockElements + done;
      StoreScale(layout, payload, first / layout.bucket, 0, scaling.scale);
      rounding.inverse = scaling.inverse;
      rounding.scale = scaling.scale;
      const BlockSums bucket =
          Quantize(layout, gradient, residual, rounding, n, out + done * layout.bits / 8);
      sums.input2 += norms.input2;
      sums.decoded2 += bucket.decoded2;
      sums.error2 += bucket.error2;
      sums.sent += bucket.sent;
    }
    return sums;
  }

 private:
  BlockSums Quantize(const LevelsLayout& layout, const float* gradient, float* residual,
                     const Rounding& rounding, size_t n, uint8_t* out) const {
    const QuantizeKernels& quantize = kernels().quantize;
    if (layout.bits == 4) return quantize.linear_4bit(gradient, residual, rounding, n, out);
    if (layout.bits == 8) return quantize.linear_8bit(gradient, residual, rounding, n, out);
    return quantize.ternary(gradient, residual, rounding, n, out, (n + 7) / 8);
  }

  const Norm norm_;
  const uint64_t seed_;
};

absl::StatusOr<size_t> BucketOption(const CodecSpec& spec, uint8_t bits) {
  const size_t smallest = bits == 2 ? kBlockElements : LevelsLayout::kSmallestBucket;
  SLIMPS_ASSIGN_OR_RETURN(
      const uint64_t bucket,
      UintOption(spec, "bucket", smallest, kBlockElements, std::max(smallest, kDefaultBucket)));
  if (!std::has_single_bit(bucket)) {
    return absl::InvalidArgumentError(
        absl::StrCat("codec qsgd, option bucket: expected a power of two, got ", bucket));
  }
  return static_cast<size_t>(bucket);
}

}  // namespace

absl::StatusOr<std::unique_ptr<Codec>> MakeQsgdCodec(const CodecSpec& spec,
                                                     const Kernels& kernels) {
  static constexpr std::string_view kWidths[] = {"2", "4", "8"};
  static constexpr std::string_view kNorms[] = {"l2", "max"};
  SLIMPS_ASSIGN_OR_RETURN(const size_t width, ChoiceOption(spec, "bits", kWidths, 1));
  const auto bits = static_cast<uint8_t>(2 << width);
  SLIMPS_ASSIGN_OR_RETURN(const size_t bucket, BucketOption(spec, bits));
  SLIMPS_ASSIGN_OR_RETURN(const size_t norm, ChoiceOption(spec, "norm", kNorms, 0));
  SLIMPS_ASSIGN_OR_RETURN(const uint64_t seed, SeedOption(spec));
  SLIMPS_ASSIGN_OR_RETURN(const ErrorFeedback feedback,
                          ErrorFeedbackOption(spec, ErrorFeedback::kOff));
  const LevelsLayout shape = {
      .bits = bits,
      .scales_per_block = 1,
      .bucket = bucket,
      .levels = static_cast<uint8_t>(bits == 2 ? 0 : (1 << (bits - 1)) - 1)};
  return std::make_unique<QsgdCodec>(spec, kernels, shape, feedback,
                                     norm == 0 ? Norm::kL2 : Norm::kMax, seed);
}

}  // namespace slimps
