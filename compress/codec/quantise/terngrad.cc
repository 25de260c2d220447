// SPDX-License-Identifier: Apache-2.0
#include "compress/codec/quantise/terngrad.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "compress/codec/quantise/partition_quantizer.h"
#include "proto/base/status_macros.h"

namespace slimps {
namespace {

constexpr float kDefaultClip = 2.5f;  // the paper's

// Thread-safe: constant after construction.
class TernGradCodec final : public PartitionQuantizer {
 public:
  TernGradCodec(const CodecSpec& spec, const Kernels& kernels, ErrorFeedback feedback,
                uint64_t seed, float clip)
      : PartitionQuantizer(spec, kernels, {.bits = 2}, kernels.quantize.measure, feedback, seed),
        clip_(clip) {}

  Scaling ChooseScaling(const PartitionNorms& norms) const override {
    float s = norms.largest;
    if (clip_ > 0 && std::isfinite(norms.input2)) {
      const double sigma = std::sqrt(norms.input2 / static_cast<double>(norms.elements));
      s = std::min(s, static_cast<float>(static_cast<double>(clip_) * sigma));
    }
    return LinearScaling(s, 1);
  }

  BlockSums EncodeBlock(const BlockInput& in, const Rounding& rounding, const LevelsLayout&,
                        uint8_t* out) const override {
    return kernels().quantize.ternary(in.gradient, in.residual, rounding, in.elements, out,
                                      (in.elements + 7) / 8);
  }

 private:
  const float clip_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Codec>> MakeTernGradCodec(const CodecSpec& spec,
                                                         const Kernels& kernels) {
  SLIMPS_ASSIGN_OR_RETURN(const float clip,
                          FloatOption(spec, "clip", FloatRange::kFinite, kDefaultClip));
  if (clip < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("codec terngrad, option clip: expected 0 (none) or more, got ", clip));
  }
  SLIMPS_ASSIGN_OR_RETURN(const uint64_t seed, SeedOption(spec));
  SLIMPS_ASSIGN_OR_RETURN(const ErrorFeedback feedback,
                          ErrorFeedbackOption(spec, ErrorFeedback::kOff));
  return std::make_unique<TernGradCodec>(spec, kernels, feedback, seed, clip);
}

}  // namespace slimps
