// SPDX-License-Identifier: Apache-2.0
#include "compress/codec/quantise/two_bit.h"

#include <limits>

#include "compress/codec/quantise/levels_codec.h"
#include "compress/kernels/kernels.h"
#include "proto/base/status_macros.h"

namespace slimps {
namespace {

constexpr float kDefaultThreshold = 0.5f;  // MXNet's

// Thread-safe: constant after construction.
class TwoBitCodec final : public LevelsCodec {
 public:
  TwoBitCodec(const CodecSpec& spec, const Kernels& kernels, ErrorFeedback feedback,
              float threshold)
      : LevelsCodec(spec, kernels, std::numeric_limits<float>::max(),
                    {.bits = 2, .scales_per_block = 0, .value = threshold}, feedback),
        threshold_(threshold) {}

  BlockSums EncodeBlock(const EncodeInput& input, size_t block,
                        std::span<std::byte> payload) const override {
    const LevelsLayout layout = Layout(input.gradient.size());
    const BlockInput in(input, block);
    uint8_t* const plane0 = Plane(layout, payload, block);
    return kernels().levels.encode_2bit_fixed(in.gradient, in.residual, input.grad_scale,
                                              threshold_, in.elements, plane0,
                                              plane0 + layout.PlaneBytes(block));
  }

 private:
  const float threshold_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Codec>> MakeTwoBitCodec(const CodecSpec& spec,
                                                       const Kernels& kernels) {
  SLIMPS_ASSIGN_OR_RETURN(const float threshold,
                          FloatOption(spec, "threshold", FloatRange::kPositive, kDefaultThreshold));
  SLIMPS_ASSIGN_OR_RETURN(const ErrorFeedback feedback,
                          ErrorFeedbackOption(spec, ErrorFeedback::kOn));
  return std::make_unique<TwoBitCodec>(spec, kernels, feedback, threshold);
}

}  // namespace slimps
