// SPDX-License-Identifier: Apache-2.0
#include "compress/codec/quantise/one_bit.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "absl/strings/str_cat.h"
#include "compress/codec/quantise/levels_codec.h"
#include "compress/kernels/kernels.h"
#include "proto/base/status_macros.h"

namespace slimps {
namespace {

// A block's sum of |x| must stay finite: 4096 * 2^115 is 2^127.
constexpr float kMaxSummand = 0x1p115f;
constexpr float kFixedValue = 1.0f;

// Returns the block's sums after its signs and means were chosen. Means are the nearest to x that
// signs allow, so input2 = decoded2 + error2. With a residual, which holds x and is still in cache,
// error2 is summed while what was sent is subtracted, and input2 follows. Without one, input2 was
// summed before, and error2 follows; rounding may leave a difference below 0.
BlockSums SumsOf(const LevelsKernels& kernels, const BlockInput& in, const SignSums& sums,
                 float positive, float negative, float decoded2) {
  BlockSums block = {.decoded2 = decoded2, .sent = static_cast<uint32_t>(in.elements)};
  if (in.residual == nullptr) {
    block.input2 = sums.input2;
    // If squares overflow, the error is infinite too: infinity less infinity would be NaN.
    block.error2 = std::isinf(decoded2) ? decoded2 : std::max(sums.input2 - decoded2, 0.0f);
  } else {
    block.error2 = kernels.subtract_sign(positive, negative, in.elements, in.residual);
    block.input2 = block.error2 + decoded2;
  }
  return block;
}

// Thread-safe: constant after construction.
class L1Codec final : public LevelsCodec {
 public:
  L1Codec(const CodecSpec& spec, const Kernels& kernels, ErrorFeedback feedback)
      : LevelsCodec(spec, kernels, kMaxSummand, {.bits = 1, .scales_per_block = 1}, feedback) {}

  BlockSums EncodeBlock(const EncodeInput& input, size_t block,
                        std::span<std::byte> payload) const override {
    const LevelsLayout layout = Layout(input.gradient.size());
    const BlockInput in(input, block);
    uint8_t* const bits = Plane(layout, payload, block);
    const LevelsKernels& levels = kernels().levels;
    const SignSums sums =
        levels.encode_sign(in.gradient, in.residual, input.grad_scale, in.elements, bits);
    const float scale = sums.positive / static_cast<float>(in.elements);
    StoreScale(layout, payload, block, 0, scale);
    return SumsOf(levels, in, sums, scale, -scale, scale * sums.positive);
  }
};

// Thread-safe: constant after construction.
class TwoMeanCodec final : public LevelsCodec {
 public:
  TwoMeanCodec(const CodecSpec& spec, const Kernels& kernels, ErrorFeedback feedback)
      : LevelsCodec(spec, kernels, kMaxSummand, {.bits = 1, .scales_per_block = 2}, feedback) {}

  BlockSums EncodeBlock(const EncodeInput& input, size_t block,
                        std::span<std::byte> payload) const override {
    const LevelsLayout layout = Layout(input.gradient.size());
    const BlockInput in(input, block);
    uint8_t* const bits = Plane(layout, payload, block);
    const LevelsKernels& levels = kernels().levels;
    const SignSums sums =
        levels.encode_sign_split(in.gradient, in.residual, input.grad_scale, in.elements, bits);
    const float positive = Mean(sums.positive, sums.positives);
    const float negative = Mean(sums.negative, in.elements - sums.positives);
    StoreScale(layout, payload, block, 0, positive);
    StoreScale(layout, payload, block, 1, negative);
    // A mean's square times its count is the mean times the sum.
    return SumsOf(levels, in, sums, positive, negative,
                  positive * sums.positive + negative * sums.negative);
  }

 private:
  static float Mean(float sum, size_t count) {
    return count == 0 ? 0.0f : sum / static_cast<float>(count);
  }
};

// Thread-safe: constant after construction.
class UnscaledCodec final : public LevelsCodec {
 public:
  UnscaledCodec(const CodecSpec& spec, const Kernels& kernels, ErrorFeedback feedback,
                float threshold)
      : LevelsCodec(spec, kernels, std::numeric_limits<float>::max(),
                    {.bits = 1, .scales_per_block = 0, .value = kFixedValue}, feedback),
        threshold_(threshold) {}

  std::string Warning() const override {
    if (threshold_ == 0) return "";
    return absl::StrCat("1bit:scaling=none with threshold ", threshold_,
                        " sends -1 for every value up to it: the sums are biased");
  }

  BlockSums EncodeBlock(const EncodeInput& input, size_t block,
                        std::span<std::byte> payload) const override {
    const LevelsLayout layout = Layout(input.gradient.size());
    const BlockInput in(input, block);
    return kernels().levels.encode_1bit_fixed(in.gradient, in.residual, input.grad_scale,
                                              threshold_, kFixedValue, in.elements,
                                              Plane(layout, payload, block));
  }

 private:
  const float threshold_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Codec>> MakeOneBitCodec(const CodecSpec& spec,
                                                       const Kernels& kernels) {
  static constexpr std::string_view kScalings[] = {"l1", "two_mean", "none"};
  SLIMPS_ASSIGN_OR_RETURN(const size_t scaling, ChoiceOption(spec, "scaling", kScalings, 0));
  SLIMPS_ASSIGN_OR_RETURN(const ErrorFeedback feedback,
                          ErrorFeedbackOption(spec, ErrorFeedback::kOn));
  SLIMPS_ASSIGN_OR_RETURN(const float threshold,
                          FloatOption(spec, "threshold", FloatRange::kFinite, 0));
  if (kScalings[scaling] == "none") {
    return std::make_unique<UnscaledCodec>(spec, kernels, feedback, threshold);
  }
  if (spec.options.contains("threshold")) {
    return absl::InvalidArgumentError(
        absl::StrCat("codec 1bit: option threshold goes with scaling=none only, got scaling=",
                     std::string(kScalings[scaling])));
  }
  if (kScalings[scaling] == "l1") return std::make_unique<L1Codec>(spec, kernels, feedback);
  return std::make_unique<TwoMeanCodec>(spec, kernels, feedback);
}

}  // namespace slimps
