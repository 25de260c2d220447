// SPDX-License-Identifier: Apache-2.0
#include "compress/codec/quantise/dithering.h"

#include "compress/codec/quantise/partition_quantizer.h"
#include "proto/base/status_macros.h"

namespace slimps {
namespace {

constexpr uint64_t kDefaultLevels = 7;  // what 4 bits hold
constexpr uint64_t kMaxLinearLevels = 127;
constexpr uint64_t kMaxNaturalLevels = 32;

enum class Norm { kMax, kL2 };

// Thread-safe: constant after construction.
class DitheringCodec final : public PartitionQuantizer {
 public:
  DitheringCodec(const CodecSpec& spec, const Kernels& kernels, const LevelsLayout& shape,
                 ErrorFeedback feedback, uint64_t seed, Norm norm)
      : PartitionQuantizer(
            spec, kernels, shape,
            norm == Norm::kMax ? kernels.quantize.measure_largest : kernels.quantize.measure,
            feedback, seed),
        levels_(shape.levels),
        natural_(shape.map == LevelsMap::kNatural),
        norm_(norm),
        quantize_(Kernel(kernels.quantize, shape)) {}

  Scaling ChooseScaling(const PartitionNorms& norms) const override {
    const float norm = norm_ == Norm::kMax ? norms.largest : L2Norm(norms.input2, norms.largest);
    return natural_ ? NaturalScaling(norm, levels_) : LinearScaling(norm, levels_);
  }

  BlockSums EncodeBlock(const BlockInput& in, const Rounding& rounding, const LevelsLayout&,
                        uint8_t* out) const override {
    return quantize_(in.gradient, in.residual, rounding, in.elements, out);
  }

 private:
  static QuantizeLevels Kernel(const QuantizeKernels& kernels, const LevelsLayout& shape) {
    if (shape.map == LevelsMap::kNatural) {
      return shape.bits == 4 ? kernels.natural_4bit : kernels.natural_8bit;
    }
    return shape.bits == 4 ? kernels.linear_4bit : kernels.linear_8bit;
  }

  const uint32_t levels_;
  const bool natural_;
  const Norm norm_;
  const QuantizeLevels quantize_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Codec>> MakeDitheringCodec(const CodecSpec& spec,
                                                          const Kernels& kernels) {
  static constexpr std::string_view kPartitions[] = {"linear", "natural"};
  static constexpr std::string_view kNorms[] = {"max", "l2"};
  SLIMPS_ASSIGN_OR_RETURN(const size_t partition, ChoiceOption(spec, "partition", kPartitions, 0));
  const bool natural = partition == 1;
  SLIMPS_ASSIGN_OR_RETURN(
      const uint64_t levels,
      UintOption(spec, "k", 1, natural ? kMaxNaturalLevels : kMaxLinearLevels, kDefaultLevels));
  SLIMPS_ASSIGN_OR_RETURN(const size_t norm, ChoiceOption(spec, "normalize", kNorms, 0));
  SLIMPS_ASSIGN_OR_RETURN(const uint64_t seed, SeedOption(spec));
  SLIMPS_ASSIGN_OR_RETURN(const ErrorFeedback feedback,
                          ErrorFeedbackOption(spec, ErrorFeedback::kOff));
  const LevelsLayout shape = {.bits = static_cast<uint8_t>(levels <= kDefaultLevels ? 4 : 8),
                              .levels = static_cast<uint8_t>(levels),
                              .map = natural ? LevelsMap::kNatural : LevelsMap::kLinear};
  return std::make_unique<DitheringCodec>(spec, kernels, shape, feedback, seed,
                                          norm == 0 ? Norm::kMax : Norm::kL2);
}

}  // namespace slimps
