// SPDX-License-Identifier: Apache-2.0
#include "compress/codec/block_codec.h"

namespace slimps {

EncodeStats BlockCodec::EncodePrepared(const EncodeInput& input, std::span<std::byte> payload,
                                       EncodeWorkspace& workspace,
                                       absl::FunctionRef<void(size_t block)> prepare) const {
  BuildHeader(input, payload);
  const auto sums = workspace.Take<BlockSums>(Blocks(input.gradient.size()));
  for (size_t block = 0; block < sums.size(); ++block) {
    prepare(block);
    sums[block] = EncodeBlock(input, block, payload);
  }
  EncodeStats stats = SumOf(sums);
  stats.payload_bytes = MaxPayloadBytes(input.gradient.size());
  return stats;
}

}  // namespace slimps
