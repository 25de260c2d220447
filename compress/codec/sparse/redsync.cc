// SPDX-License-Identifier: Apache-2.0
#include "compress/codec/sparse/redsync.h"

#include "compress/codec/sparse/select/ranked_run.h"
#include "compress/codec/sparse/sparse_options.h"
#include "proto/base/status_macros.h"

namespace slimps {
namespace {

constexpr SparseValues kValues = SparseValues::kOne;

// Owned by one encoding.
class RedSyncRun final : public RankedRun {
 public:
  using RankedRun::RankedRun;

 protected:
  Scales ScalesOf(const SentOfSign& sent) override {
    const uint32_t count = sent.positives + sent.negatives;
    if (count == 0) return {};
    const double sum = sent.positive + sent.negative;  // one of them is 0
    return {.scale0 = static_cast<float>(sum / count)};
  }
};

// Thread-safe: constant after construction.
class RedSyncCodec final : public CountedSparseCodec {
 public:
  RedSyncCodec(const CodecSpec& spec, const Kernels& kernels, ErrorFeedback feedback, SentCount k)
      : CountedSparseCodec(spec, kernels, kValues, feedback, k) {}

  EncodeStats EncodeValid(const EncodeInput& input, std::span<std::byte> payload,
                          EncodeWorkspace& workspace) const override {
    const SelectBy by = input.context.round % 2 == 1 ? SelectBy::kPositive : SelectBy::kNegative;
    return RedSyncRun(kernels(), input, payload, workspace,
                      {.by = by, .rank = k(input.gradient.size())}, kValues)
        .Run();
  }
};

}  // namespace

absl::StatusOr<std::unique_ptr<Codec>> MakeRedSyncCodec(const CodecSpec& spec,
                                                        const Kernels& kernels) {
  SLIMPS_ASSIGN_OR_RETURN(const SentCount k, SentCountOption(spec));
  SLIMPS_ASSIGN_OR_RETURN(const ErrorFeedback feedback,
                          ErrorFeedbackOption(spec, ErrorFeedback::kOn));
  return std::make_unique<RedSyncCodec>(spec, kernels, feedback, k);
}

}  // namespace slimps
