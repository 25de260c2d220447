// SPDX-License-Identifier: Apache-2.0
#include "compress/codec/quantise/signsgd.h"

#include <limits>

#include "compress/codec/quantise/levels_codec.h"
#include "compress/kernels/kernels.h"
#include "proto/base/status_macros.h"

namespace slimps {
namespace {

// Thread-safe: constant after construction.
class SignSgdCodec final : public LevelsCodec {
 public:
  SignSgdCodec(const CodecSpec& spec, const Kernels& kernels, ErrorFeedback feedback)
      : LevelsCodec(spec, kernels, std::numeric_limits<float>::max(),
                    {.bits = 1, .scales_per_block = 0, .value = 1}, feedback) {}

  Combine combine() const override { return Combine::kMajority; }

  std::string Warning() const override {
    if (!wants_residual()) return "";
    return "signsgd with error feedback subtracts 1 from every residual, whatever the gradients' "
           "magnitude, and a "
           "majority does not add up what workers send: 1bit has error feedback with signs scaled "
           "by the mean";
  }

  BlockSums EncodeBlock(const EncodeInput& input, size_t block,
                        std::span<std::byte> payload) const override {
    const BlockInput in(input, block);
    return kernels().quantize.sign(in.gradient, in.residual, input.grad_scale, in.elements,
                                   Plane(Layout(input.gradient.size()), payload, block));
  }
};

}  // namespace

absl::StatusOr<std::unique_ptr<Codec>> MakeSignSgdCodec(const CodecSpec& spec,
                                                        const Kernels& kernels) {
  SLIMPS_ASSIGN_OR_RETURN(const ErrorFeedback feedback,
                          ErrorFeedbackOption(spec, ErrorFeedback::kOff));
  return std::make_unique<SignSgdCodec>(spec, kernels, feedback);
}

}  // namespace slimps
