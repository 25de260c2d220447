// SPDX-License-Identifier: Apache-2.0
// GradientCodec: clips the gradient, applies momentum, and lets an inner codec encode the result.
// decorators.h has the formulas and makes these codecs.
//
// Clipping makes no |x| larger than the larger of |residual| and |x| without clipping, nor does
// rounding. So what can be encoded without clipping can be encoded with it. Passes over memory
// beside the inner codec's:
//
//   clip        reads 4 bytes per element for the norm. The factor then goes into grad_scale
//   momentum    reads gradient and momentum, writes momentum and the result (12 to 16 bytes). With
//               a BlockCodec inside, this runs block by block just before the inner pass, which
//               then finds the block in cache; else in a pass before (4 bytes more)
//   masking     reads the payload, and of the momentum only what it clears
#ifndef SLIMPS_COMPRESS_CODEC_GRADIENT_CODEC_H_
#define SLIMPS_COMPRESS_CODEC_GRADIENT_CODEC_H_

#include <memory>
#include <optional>
#include <span>
#include <string>

#include "compress/codec/block_codec.h"
#include "compress/codec/codec.h"
#include "compress/codec/encode_run.h"
#include "compress/kernels/kernels.h"

namespace slimps {

enum class GradientMomentum { kNone, kNesterov, kDgc };

// The options that decorators.h reads from a spec.
struct GradientOptions {
  std::optional<double> clip;  // the largest norm, already divided by sqrt(clip_workers)
  GradientMomentum momentum = GradientMomentum::kNone;
  float mu = 0;
};

// Thread-safe: constant after construction.
class GradientCodec final : public Codec {
 public:
  GradientCodec(CodecSpec spec, const Kernels& kernels, const GradientOptions& options,
                std::unique_ptr<Codec> inner);

  PayloadFormat format() const override { return inner_->format(); }
  bool wants_residual() const override { return inner_->wants_residual(); }
  std::optional<MomentumRule> Momentum(float grad_scale) const override {
    return has_momentum() ? Rule(grad_scale) : inner_->Momentum(grad_scale);
  }
  Combine combine() const override { return inner_->combine(); }
  bool Takes(std::span<const int64_t> shape) const override { return inner_->Takes(shape); }
  size_t MaxPayloadBytes(size_t elements) const override {
    return inner_->MaxPayloadBytes(elements);
  }
  std::string Warning() const override { return inner_->Warning(); }
  EncodeStats EncodeValid(const EncodeInput& input, std::span<std::byte> payload,
                          EncodeWorkspace& workspace) const override;

 private:
  bool has_momentum() const { return options_.momentum != GradientMomentum::kNone; }
  MomentumRule Rule(float grad_scale) const;
  float ClipFactor(const EncodeInput& input) const;
  // Clears the momentum of what the payload sends.
  void Mask(const EncodeInput& input, std::span<const std::byte> payload) const;

  const GradientOptions options_;
  const std::unique_ptr<Codec> inner_;
  const BlockCodec* const by_blocks_;  // inner_ if it is a BlockCodec, else nullptr
};

}  // namespace slimps

#endif  // SLIMPS_COMPRESS_CODEC_GRADIENT_CODEC_H_
