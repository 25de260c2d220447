// SPDX-License-Identifier: Apache-2.0
#include "compress/codec/quantise/drive.h"

#include <cmath>
#include <cstring>

#include "compress/codec/block_codec.h"
#include "compress/codec/options.h"
#include "compress/codec/quantise/rotated_block.h"
#include "compress/codec/quantise/stochastic.h"
#include "compress/format/levels.h"
#include "compress/format/rotated.h"
#include "compress/kernels/kernels.h"
#include "proto/base/status_macros.h"

namespace slimps {
namespace {

// A smaller sum of squares has lost its precision.
constexpr float kSmallestSquares = 0x1p-100f;

enum class Scale { kUnbiased, kMse };

// Thread-safe: constant after construction.
class DriveCodec final : public BlockCodec {
 public:
  DriveCodec(const CodecSpec& spec, const Kernels& kernels, ErrorFeedback feedback, Scale scale,
             uint64_t seed)
      : BlockCodec(spec, kernels, kMaxRotated), feedback_(feedback), scale_(scale), seed_(seed) {}

  PayloadFormat format() const override { return PayloadFormat::kRotated; }
  bool wants_residual() const override { return feedback_ == ErrorFeedback::kOn; }
  size_t MaxPayloadBytes(size_t elements) const override {
    return kRotatedHeaderBytes + Layout(elements).PayloadBytes();
  }

  void BuildHeader(const EncodeInput& input, std::span<std::byte> payload) const override {
    BuildRotatedHeader(input.gradient.size(), Rotation(input.context), payload);
    BuildLevelsHeader(Layout(input.gradient.size()), payload.subspan(kRotatedHeaderBytes));
  }

  BlockSums EncodeBlock(const EncodeInput& input, size_t block,
                        std::span<std::byte> payload) const override {
    const std::span<std::byte> levels = payload.subspan(kRotatedHeaderBytes);
    const auto encode = [&](float input2, std::span<const float> y) {
      return EncodeSigns(Layout(input.gradient.size()), block, input2, y, levels);
    };
    const auto decode = [&](std::span<float> y) {
      DecodeLevels(kernels(), levels, block * kBlockElements, y);
    };
    return EncodeRotatedBlock(kernels(), Rotation(input.context), input, block, encode, decode);
  }

 private:
  PhiloxStream Rotation(const EncodeContext& context) const {
    return PhiloxStream::Of(seed_, context.key, context.round, context.worker, context.partition);
  }

  // The layout of the rotated elements.
  static LevelsLayout Layout(size_t elements) {
    return {.bits = 1, .scales_per_block = 1, .elements = RotatedLength(elements)};
  }

  RotatedSums EncodeSigns(const LevelsLayout& layout, size_t block, float input2,
                          std::span<const float> y, std::span<std::byte> levels) const {
    auto* const bits = reinterpret_cast<uint8_t*>(levels.data() + layout.PlanesOffset(block));
    const float magnitude =
        kernels().levels.encode_sign(y.data(), nullptr, /*grad_scale=*/1, y.size(), bits).positive;
    const float scale = ScaleOf(input2, magnitude, y.size());
    std::memcpy(levels.data() + layout.ScaleOffset(block), &scale, sizeof scale);
    // <x, decoded> is m times that of y, which is the scale times the sum of |y|.
    const double wide = static_cast<double>(y.size()) * static_cast<double>(scale);
    return {.decoded2 = wide * wide,
            .difference = static_cast<double>(input2) - 2 * wide * static_cast<double>(magnitude)};
  }

  float ScaleOf(float input2, float magnitude, size_t m) const {
    const auto count = static_cast<float>(m);
    const bool precise = input2 >= kSmallestSquares && std::isfinite(input2);
    if (scale_ == Scale::kMse || !precise) return magnitude / count;
    return input2 / (count * magnitude);
  }

  const ErrorFeedback feedback_;
  const Scale scale_;
  const uint64_t seed_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Codec>> MakeDriveCodec(const CodecSpec& spec,
                                                      const Kernels& kernels) {
  static constexpr std::string_view kScales[] = {"unbiased", "mse"};
  SLIMPS_ASSIGN_OR_RETURN(const size_t scale, ChoiceOption(spec, "scale", kScales, 0));
  SLIMPS_ASSIGN_OR_RETURN(const uint64_t seed, SeedOption(spec));
  SLIMPS_ASSIGN_OR_RETURN(const ErrorFeedback feedback,
                          ErrorFeedbackOption(spec, ErrorFeedback::kOff));
  return std::make_unique<DriveCodec>(spec, kernels, feedback,
                                      scale == 0 ? Scale::kUnbiased : Scale::kMse, seed);
}

}  // namespace slimps
