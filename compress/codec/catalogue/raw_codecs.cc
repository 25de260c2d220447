// SPDX-License-Identifier: Apache-2.0
// none, fp16 and bf16: x in full or half precision, rounded to nearest even. A value that half
// precision would turn into infinity is refused, not clipped: a server must never meet an infinity
// that the gradient did not have.
#include <limits>
#include <utility>

#include "compress/codec/block_codec.h"
#include "compress/codec/catalogue/registry.h"
#include "compress/codec/options.h"
#include "compress/kernels/kernels.h"
#include "proto/base/status_macros.h"

namespace slimps {
namespace {

// Thread-safe: constant after construction.
class RawCodec final : public BlockCodec {
 public:
  using Kernel = decltype(RawKernels::encode_f32);

  struct Type {
    PayloadFormat format;
    size_t element_bytes;
    float limit;
    Kernel encode;
  };

  RawCodec(CodecSpec spec, const Kernels& kernels, Type type, ErrorFeedback feedback)
      : BlockCodec(std::move(spec), kernels, type.limit), type_(type), feedback_(feedback) {}

  PayloadFormat format() const override { return type_.format; }
  bool wants_residual() const override { return feedback_ == ErrorFeedback::kOn; }
  size_t MaxPayloadBytes(size_t elements) const override { return elements * type_.element_bytes; }
  void BuildHeader(const EncodeInput&, std::span<std::byte>) const override {}
  BlockSums EncodeBlock(const EncodeInput& input, size_t block,
                        std::span<std::byte> payload) const override {
    const BlockInput in(input, block);
    return type_.encode(in.gradient, in.residual, input.grad_scale, in.elements,
                        payload.data() + block * kBlockElements * type_.element_bytes);
  }

 private:
  const Type type_;
  const ErrorFeedback feedback_;
};

absl::StatusOr<std::unique_ptr<Codec>> Make(const CodecSpec& spec, const Kernels& kernels,
                                            const RawCodec::Type& type) {
  SLIMPS_ASSIGN_OR_RETURN(const ErrorFeedback feedback,
                          ErrorFeedbackOption(spec, ErrorFeedback::kOff));
  return std::make_unique<RawCodec>(spec, kernels, type, feedback);
}

absl::StatusOr<std::unique_ptr<Codec>> MakeFp32Codec(const CodecSpec& spec,
                                                     const Kernels& kernels) {
  return Make(
      spec, kernels,
      {PayloadFormat::kRawF32, 4, std::numeric_limits<float>::max(), kernels.raw.encode_f32});
}

absl::StatusOr<std::unique_ptr<Codec>> MakeFp16Codec(const CodecSpec& spec,
                                                     const Kernels& kernels) {
  return Make(
      spec, kernels,
      {PayloadFormat::kRawF16, 2, LargestRawValue(PayloadFormat::kRawF16), kernels.raw.encode_f16});
}

absl::StatusOr<std::unique_ptr<Codec>> MakeBf16Codec(const CodecSpec& spec,
                                                     const Kernels& kernels) {
  return Make(spec, kernels,
              {PayloadFormat::kRawBf16, 2, LargestRawValue(PayloadFormat::kRawBf16),
               kernels.raw.encode_bf16});
}

}  // namespace

std::vector<CodecEntry> RawCodecs() {
  return {{"none", {}, MakeFp32Codec},
          {"fp16", {"error_feedback"}, MakeFp16Codec},
          {"bf16", {"error_feedback"}, MakeBf16Codec}};
}

}  // namespace slimps
