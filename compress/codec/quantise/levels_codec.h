// SPDX-License-Identifier: Apache-2.0
// LevelsCodec: base of the codecs of format "levels" that encode block by block. It derives the
// payload's layout from the codec's bits and scales.
#ifndef SLIMPS_COMPRESS_CODEC_QUANTISE_LEVELS_CODEC_H_
#define SLIMPS_COMPRESS_CODEC_QUANTISE_LEVELS_CODEC_H_

#include <cstring>
#include <utility>

#include "compress/codec/block_codec.h"
#include "compress/codec/options.h"
#include "compress/format/levels.h"

namespace slimps {

// Thread-safe: constant after construction.
class LevelsCodec : public BlockCodec {
 public:
  PayloadFormat format() const final { return PayloadFormat::kLevels; }
  bool wants_residual() const final { return feedback_ == ErrorFeedback::kOn; }
  size_t MaxPayloadBytes(size_t elements) const final { return Layout(elements).PayloadBytes(); }
  void BuildHeader(const EncodeInput& input, std::span<std::byte> payload) const final {
    BuildLevelsHeader(Layout(input.gradient.size()), payload);
  }

 protected:
  // `shape`: bits, scales and value; `elements` is ignored.
  LevelsCodec(CodecSpec spec, const Kernels& kernels, float limit, const LevelsLayout& shape,
              ErrorFeedback feedback)
      : BlockCodec(std::move(spec), kernels, limit), shape_(shape), feedback_(feedback) {}

  LevelsLayout Layout(size_t elements) const {
    LevelsLayout layout = shape_;
    layout.elements = elements;
    return layout;
  }

  // Returns where the block's codes or its plane 0 begin.
  static uint8_t* Plane(const LevelsLayout& layout, std::span<std::byte> payload, size_t block) {
    return reinterpret_cast<uint8_t*>(payload.data() + layout.PlanesOffset(block));
  }

  // Writes scale `index` of scale block `block`.
  static void StoreScale(const LevelsLayout& layout, std::span<std::byte> payload, size_t block,
                         size_t index, float scale) {
    std::memcpy(payload.data() + layout.ScaleOffset(block) + index * sizeof scale, &scale,
                sizeof scale);
  }

 private:
  const LevelsLayout shape_;
  const ErrorFeedback feedback_;
};

}  // namespace slimps

#endif  // SLIMPS_COMPRESS_CODEC_QUANTISE_LEVELS_CODEC_H_
