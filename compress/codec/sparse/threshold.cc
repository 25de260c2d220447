// SPDX-License-Identifier: Apache-2.0
#include "compress/codec/sparse/threshold.h"

#include "compress/codec/sparse/select/selection_run.h"
#include "compress/codec/sparse/sparse_options.h"
#include "proto/base/status_macros.h"

namespace slimps {
namespace {

constexpr float kDefaultTau = 0.5f;

// Owned by one encoding.
class ThresholdRun final : public SelectionRun {
 public:
  ThresholdRun(const Kernels& kernels, const EncodeInput& input, std::span<std::byte> payload,
               EncodeWorkspace& workspace, float tau, SparseValues values)
      : SelectionRun(kernels, input, payload, workspace, {.fixed_floor = tau}, values), tau_(tau) {}

 protected:
  Scales ScalesOf(const SentOfSign&) override { return {.scale0 = tau_}; }

 private:
  const float tau_;
};

// Thread-safe: constant after construction.
class ThresholdCodec final : public SparseCodec {
 public:
  ThresholdCodec(const CodecSpec& spec, const Kernels& kernels, SparseValues values,
                 ErrorFeedback feedback, float tau)
      : SparseCodec(spec, kernels, values, feedback), tau_(tau) {}

  size_t MaxPayloadBytes(size_t elements) const override {
    return SparseBuilder::MaxPayloadBytes({.values = values(), .elements = elements}, elements);
  }
  EncodeStats EncodeValid(const EncodeInput& input, std::span<std::byte> payload,
                          EncodeWorkspace& workspace) const override {
    return ThresholdRun(kernels(), input, payload, workspace, tau_, values()).Run();
  }

 private:
  const float tau_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Codec>> MakeThresholdCodec(const CodecSpec& spec,
                                                          const Kernels& kernels) {
  static constexpr std::string_view kChoices[] = {"tau", "fp32"};
  SLIMPS_ASSIGN_OR_RETURN(const size_t value, ChoiceOption(spec, "value", kChoices, 0));
  SLIMPS_ASSIGN_OR_RETURN(const float tau,
                          FloatOption(spec, "tau", FloatRange::kPositive, kDefaultTau));
  SLIMPS_ASSIGN_OR_RETURN(const ErrorFeedback feedback,
                          ErrorFeedbackOption(spec, ErrorFeedback::kOn));
  return std::make_unique<ThresholdCodec>(
      spec, kernels, value == 0 ? SparseValues::kSign : SparseValues::kF32, feedback, tau);
}

}  // namespace slimps
