// A codec with a ratio that begins with larger ones: rounds 1 .. steps * rounds_per_step use a codec per step, later
// ones (and round 0, unknown) the last. Payloads say what they are, so a server sees nothing of it.
#ifndef SLIMPS_COMPRESS_CODEC_WARMUP_CODEC_H_
#define SLIMPS_COMPRESS_CODEC_WARMUP_CODEC_H_

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "compress/codec/codec.h"
#include "compress/codec/encode_run.h"

namespace slimps {

// Thread-safe: constant after construction.
class WarmupCodec final : public Codec {
 public:
  // REQUIRES: steps is not empty; all are of one kind and differ in their ratio alone.
  WarmupCodec(CodecSpec spec, const Kernels& kernels, uint64_t rounds_per_step,
              std::vector<std::unique_ptr<Codec>> steps);

  PayloadFormat format() const override { return last().format(); }
  bool wants_residual() const override { return last().wants_residual(); }
  bool wants_momentum() const override { return last().wants_momentum(); }
  Combine combine() const override { return last().combine(); }
  bool refuses_server_momentum() const override { return last().refuses_server_momentum(); }
  size_t MaxPayloadBytes(size_t elements) const override;  // of any step
  absl::StatusOr<float> AdvanceMomentum(const EncodeInput& input,
                                        std::span<float> out) const override {
    return last().AdvanceMomentum(input, out);
  }
  std::string Warning() const override { return last().Warning(); }

  bool KnownEncodable(const EncodeInput& input) const override;
  size_t FindUnencodable(const EncodeInput& input, size_t first_block,
                         size_t last_block) const override;
  absl::Status DescribeUnencodable(const EncodeInput& input, size_t element) const override;
  std::unique_ptr<EncodeRun> Begin(const EncodeInput& input, std::span<std::byte> payload,
                                   EncodeWorkspace& workspace) const override;

 private:
  const Codec& last() const { return *steps_.back(); }
  const Codec& At(uint64_t round) const;

  const uint64_t rounds_per_step_;
  const std::vector<std::unique_ptr<Codec>> steps_;
};

}  // namespace slimps

#endif  // SLIMPS_COMPRESS_CODEC_WARMUP_CODEC_H_
