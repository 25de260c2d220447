#include "compress/codec/topk.h"

#include "compress/codec/ranked_run.h"
#include "compress/codec/sparse_options.h"
#include "proto/base/status_macros.h"

namespace slimps {
namespace {

// Thread-safe: constant after construction.
class TopKCodec final : public SparseCodec {
 public:
  TopKCodec(const CodecSpec& spec, const Kernels& kernels, SparseValues values,
            ErrorFeedback feedback, SentCount k)
      : SparseCodec(spec, kernels, LargestSparseValue(values), values, feedback), k_(k) {}

  size_t MaxPayloadBytes(size_t elements) const override {
    return SparseBuilder::MaxPayloadBytes({.values = values(), .elements = elements},
                                          k_.Of(elements));
  }
  std::unique_ptr<EncodeRun> Begin(const EncodeInput& input, std::span<std::byte> payload,
                                   EncodeWorkspace& workspace) const override {
    return std::make_unique<RankedRun>(kernels(), input, payload, workspace, SelectBy::kMagnitude,
                                       k_.Of(input.gradient.size()), values());
  }

 private:
  const SentCount k_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Codec>> MakeTopKCodec(const CodecSpec& spec,
                                                     const Kernels& kernels) {
  SLIMPS_ASSIGN_OR_RETURN(const SentCount k, SentCountOption(spec));
  SLIMPS_ASSIGN_OR_RETURN(const SparseValues values, ValueOption(spec));
  SLIMPS_ASSIGN_OR_RETURN(const ErrorFeedback feedback,
                          ErrorFeedbackOption(spec, ErrorFeedback::kOn));
  return std::make_unique<TopKCodec>(spec, kernels, values, feedback, k);
}

}  // namespace slimps
