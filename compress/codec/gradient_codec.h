// A codec that another one encodes for, once the gradient is clipped and has gone through momentum (decorators.h has the
// formulas). Clipping makes no |x| larger than the larger of |residual| and |x| without clipping, nor does it round past
// them: so what is encodable without it is with it. Passes over memory, beside the inner codec's:
//
//   clip        4 bytes read per element: the norm. The factor then goes into grad_scale
//   momentum    gradient and momentum read, momentum and what goes on written (12 to 16). For a BlockCodec block by block
//               just before its own pass over the block, which finds it in cache; else in a pass before (4 more)
//   masking     reads the payload, and of the momentum only what it clears
#ifndef SLIMPS_COMPRESS_CODEC_GRADIENT_CODEC_H_
#define SLIMPS_COMPRESS_CODEC_GRADIENT_CODEC_H_

#include <memory>
#include <optional>
#include <span>
#include <string>

#include "compress/codec/codec.h"
#include "compress/codec/encode_run.h"
#include "compress/kernels/kernels.h"

namespace slimps {

enum class GradientMomentum { kNone, kNesterov, kDgc };

struct GradientOptions {
  std::optional<double> clip;  // the largest norm, workers counted in
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
  size_t MaxPayloadBytes(size_t elements) const override {
    return inner_->MaxPayloadBytes(elements);
  }
  std::string Warning() const override { return inner_->Warning(); }
  std::unique_ptr<EncodeRun> Begin(const EncodeInput& input, std::span<std::byte> payload,
                                   EncodeWorkspace& workspace) const override;

 private:
  class Run;

  bool has_momentum() const { return options_.momentum != GradientMomentum::kNone; }
  MomentumRule Rule(float grad_scale) const;

  const GradientOptions options_;
  const std::unique_ptr<Codec> inner_;
  const bool by_blocks_;  // it is a BlockCodec
};

}  // namespace slimps

#endif  // SLIMPS_COMPRESS_CODEC_GRADIENT_CODEC_H_
