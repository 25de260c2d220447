// SPDX-License-Identifier: Apache-2.0
#include "compress/codec/block_codec.h"

namespace slimps {
namespace {

// Owned by one encoding. Several threads may call Blocks at the same time, see EncodeRun.
class BlockRun final : public EncodeRun {
 public:
  BlockRun(const BlockCodec& codec, const EncodeInput& input, std::span<std::byte> payload,
           EncodeWorkspace& workspace)
      : codec_(codec),
        input_(input),
        payload_(payload),
        sums_(workspace.Take<BlockSums>(Codec::Blocks(input.gradient.size()))) {
    codec_.BuildHeader(input_, payload_);
  }

  size_t passes() const override { return 1; }
  void Blocks(size_t /*pass*/, size_t first, size_t last) override {
    for (size_t block = first; block < last; ++block) {
      sums_[block] = codec_.EncodeBlock(input_, block, payload_);
    }
  }
  EncodeStats Finish() override {
    EncodeStats stats = SumOf(sums_);
    stats.payload_bytes = codec_.MaxPayloadBytes(input_.gradient.size());
    return stats;
  }

 private:
  const BlockCodec& codec_;
  const EncodeInput input_;
  const std::span<std::byte> payload_;
  const std::span<BlockSums> sums_;
};

}  // namespace

std::unique_ptr<EncodeRun> BlockCodec::Begin(const EncodeInput& input, std::span<std::byte> payload,
                                             EncodeWorkspace& workspace) const {
  return std::make_unique<BlockRun>(*this, input, payload, workspace);
}

}  // namespace slimps
