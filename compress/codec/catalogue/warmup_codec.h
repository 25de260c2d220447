// SPDX-License-Identifier: Apache-2.0
// WarmupCodec: a codec with a ratio that begins with larger ratios. Rounds 1 .. steps *
// rounds_per_step use one codec per step. Later rounds, and round 0 (unknown), use the last one. A
// payload says itself how it is coded, so a server does not notice. decorators.h makes these
// codecs.
#ifndef SLIMPS_COMPRESS_CODEC_CATALOGUE_WARMUP_CODEC_H_
#define SLIMPS_COMPRESS_CODEC_CATALOGUE_WARMUP_CODEC_H_

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "compress/codec/codec.h"
#include "compress/codec/encode_run.h"

namespace slimps {

// Thread-safe: constant after construction.
class WarmupCodec final : public Codec {
 public:
  // REQUIRES: `steps` is not empty, and its codecs differ only in their ratio.
  WarmupCodec(CodecSpec spec, const Kernels& kernels, uint64_t rounds_per_step,
              std::vector<std::unique_ptr<Codec>> steps);

  const CodecSpec& settled_spec() const override { return last().spec(); }
  PayloadFormat format() const override { return last().format(); }
  bool wants_residual() const override { return last().wants_residual(); }
  std::optional<MomentumRule> Momentum(float grad_scale) const override {
    return last().Momentum(grad_scale);
  }
  Combine combine() const override { return last().combine(); }
  size_t MaxPayloadBytes(size_t elements) const override;  // the most of any step
  std::string Warning() const override { return last().Warning(); }
  EncodeStats EncodeValid(const EncodeInput& input, std::span<std::byte> payload,
                          EncodeWorkspace& workspace) const override {
    return At(input.context.round).EncodeValid(input, payload, workspace);
  }

 private:
  const Codec& last() const { return *steps_.back(); }
  const Codec& At(uint64_t round) const;

  const uint64_t rounds_per_step_;
  const std::vector<std::unique_ptr<Codec>> steps_;
};

}  // namespace slimps

#endif  // SLIMPS_COMPRESS_CODEC_CATALOGUE_WARMUP_CODEC_H_
