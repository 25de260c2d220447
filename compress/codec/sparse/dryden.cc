// SPDX-License-Identifier: Apache-2.0
#include "compress/codec/sparse/dryden.h"

#include <algorithm>

#include "compress/codec/sparse/dryden_run.h"
#include "compress/codec/sparse/sparse_options.h"
#include "proto/base/status_macros.h"

namespace slimps {
namespace {

constexpr SparseValues kValues = SparseValues::kSignTwo;
constexpr double kDefaultRatio = 0.003;

// Thread-safe: constant after construction.
class DrydenCodec final : public SparseCodec {
 public:
  DrydenCodec(const CodecSpec& spec, const Kernels& kernels, ErrorFeedback feedback,
              SentCount proportion)
      : SparseCodec(spec, kernels, kValues, feedback), proportion_(proportion) {}

  size_t MaxPayloadBytes(size_t elements) const override {
    // Each side sends at least one element, which may be one more than its part.
    return SparseBuilder::MaxPayloadBytes({.values = kValues, .elements = elements},
                                          std::min(proportion_.Of(elements) + 2, elements));
  }
  EncodeStats EncodeValid(const EncodeInput& input, std::span<std::byte> payload,
                          EncodeWorkspace& workspace) const override {
    return DrydenRun(kernels(), input, payload, workspace, proportion_).Run();
  }

 private:
  const SentCount proportion_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Codec>> MakeDrydenCodec(const CodecSpec& spec,
                                                       const Kernels& kernels) {
  SentCount proportion = {.ratio = kDefaultRatio};
  if (spec.options.contains("ratio")) {
    SLIMPS_ASSIGN_OR_RETURN(proportion, SentCountOption(spec));
  }
  SLIMPS_ASSIGN_OR_RETURN(const ErrorFeedback feedback,
                          ErrorFeedbackOption(spec, ErrorFeedback::kOn));
  return std::make_unique<DrydenCodec>(spec, kernels, feedback, proportion);
}

}  // namespace slimps
