// SPDX-License-Identifier: Apache-2.0
#include "compress/codec/sparse/topk.h"

#include "compress/codec/sparse/select/nested_run.h"
#include "compress/codec/sparse/select/ranked_run.h"
#include "compress/codec/sparse/sparse_options.h"
#include "proto/base/status_macros.h"

namespace slimps {
namespace {

// Thread-safe: constant after construction.
class TopKCodec final : public CountedSparseCodec {
 public:
  TopKCodec(const CodecSpec& spec, const Kernels& kernels, SparseValues values,
            ErrorFeedback feedback, SentCount k)
      : CountedSparseCodec(spec, kernels, values, feedback, k) {}

  EncodeStats EncodeValid(const EncodeInput& input, std::span<std::byte> payload,
                          EncodeWorkspace& workspace) const override {
    const size_t count = k(input.gradient.size());
    if (StartsFrom(input)) {
      return NestedRun(kernels(), input, payload, workspace, count, values()).Run();
    }
    return RankedRun(kernels(), input, payload, workspace, {.rank = count}, values()).Run();
  }

 private:
  // True if input.finer has all elements that this codec sends, with their exact values.
  bool StartsFrom(const EncodeInput& input) const {
    const auto* const finer = dynamic_cast<const TopKCodec*>(input.finer.codec);
    return finer != nullptr && finer->values() == SparseValues::kF32 && input.residual.empty() &&
           finer->k(input.gradient.size()) >= k(input.gradient.size());
  }
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
