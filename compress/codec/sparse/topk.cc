// SPDX-License-Identifier: Apache-2.0
#include "compress/codec/sparse/topk.h"

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

  std::unique_ptr<EncodeRun> Begin(const EncodeInput& input, std::span<std::byte> payload,
                                   EncodeWorkspace& workspace) const override {
    return std::make_unique<RankedRun>(kernels(), input, payload, workspace, SelectBy::kMagnitude,
                                       k(input.gradient.size()), values());
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
