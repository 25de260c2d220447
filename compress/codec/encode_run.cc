// SPDX-License-Identifier: Apache-2.0
#include "compress/codec/encode_run.h"

#include <algorithm>

namespace slimps {
namespace {

constexpr size_t kSmallestChunk = 64 << 10;

}  // namespace

std::span<std::byte> EncodeWorkspace::TakeBytes(size_t bytes) {
  bytes = (bytes + kBufferAlignment - 1) / kBufferAlignment * kBufferAlignment;
  if (chunks_.empty() || chunks_.back().size() - used_ < bytes) {
    // One more chunk, not a larger one: spans taken before stay valid.
    chunks_.emplace_back(std::max(bytes, kSmallestChunk));
    used_ = 0;
  }
  const std::span<std::byte> taken = chunks_.back().bytes().subspan(used_, bytes);
  used_ += bytes;
  return taken;
}

void EncodeWorkspace::Reset() {
  used_ = 0;
  if (chunks_.size() < 2) return;
  // One chunk replaces them all, so the next encoding of this size takes memory without allocating.
  size_t total = 0;
  for (const AlignedBuffer& chunk : chunks_) total += chunk.size();
  chunks_.clear();
  chunks_.emplace_back(total);
}

EncodeStats SumOf(std::span<const BlockSums> blocks) {
  EncodeStats stats;
  for (const BlockSums& block : blocks) {
    stats.elements_sent += block.sent;
    stats.input_norm2 += static_cast<double>(block.input2);
    stats.decoded_norm2 += static_cast<double>(block.decoded2);
    stats.error_norm2 += static_cast<double>(block.error2);
  }
  return stats;
}

}  // namespace slimps
