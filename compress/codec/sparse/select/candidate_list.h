// SPDX-License-Identifier: Apache-2.0
// What the runs that select elements share: a list of candidates, and what happens to a block's
// entries once it is known which are sent.
//
//   list.Take(workspace, room);
//   const uint32_t at = list.Append(index, value, found.count);     // block by block
//   if (list.complete()) Choose(list.values().subspan(at, count));
#ifndef SLIMPS_COMPRESS_CODEC_SPARSE_SELECT_CANDIDATE_LIST_H_
#define SLIMPS_COMPRESS_CODEC_SPARSE_SELECT_CANDIDATE_LIST_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

#include "compress/codec/encode_run.h"
#include "compress/codec/sparse/select/sparse_builder.h"
#include "compress/kernels/kernels.h"

namespace slimps {

// Thread-compatible. The workspace owns the memory.
class CandidateList final {
 public:
  // Makes it an empty list with room for `room` candidates.
  void Take(EncodeWorkspace& workspace, size_t room) {
    indices_ = workspace.Take<uint32_t>(room);
    values_ = workspace.Take<float>(room);
    Clear();
  }

  void Clear() { used_ = 0; }

  // Appends one block's candidates and returns where they begin. If there is no room for all of
  // them, Append copies none, and the list is no longer complete.
  uint32_t Append(const uint32_t* index, const float* value, size_t count) {
    const size_t offset = used_;
    used_ += count;
    if (used_ <= indices_.size()) {
      std::copy_n(index, count, indices_.data() + offset);
      std::copy_n(value, count, values_.data() + offset);
    }
    return static_cast<uint32_t>(offset);
  }

  // Returns how many were appended, with or without room for them.
  size_t used() const { return used_; }

  // True if there was room for all.
  bool complete() const { return used() <= indices_.size(); }

  // REQUIRES: complete().
  std::span<uint32_t> indices() const { return indices_.first(used()); }
  std::span<float> values() const { return values_.first(used()); }

 private:
  std::span<uint32_t> indices_;
  std::span<float> values_;
  size_t used_ = 0;
};

// One block's part of EncodeStats.
struct SentBlock {
  uint32_t sent = 0;
  float left2 = 0;  // sum of squares of what is not sent
  SentSums sums;
};

// Writes one block's entries to the payload and what each loses by it to the residual. Sets
// `sent.sums`.
inline void WriteSent(const Kernels& kernels, const EncodeInput& input, size_t block,
                      std::span<const uint32_t> index, std::span<const float> value,
                      SparseBuilder& builder, SentBlock& sent) {
  float decoded[kBlockElements];
  builder.WriteBlock(block, index, value, decoded);
  sent.sums = kernels.sparse.put_error(index.data(), value.data(), decoded, value.size(),
                                       BlockInput(input, block).residual);
}

// Returns the sum of the blocks' numbers, added in the order of the blocks. `Block` is derived from
// SentBlock.
template <typename Block>
EncodeStats StatsOf(std::span<const Block> blocks, size_t payload_bytes) {
  EncodeStats stats = {.payload_bytes = payload_bytes};
  for (const SentBlock& block : blocks) {
    stats.elements_sent += block.sent;
    stats.input_norm2 += static_cast<double>(block.left2 + block.sums.sent2);
    stats.decoded_norm2 += static_cast<double>(block.sums.decoded2);
    stats.error_norm2 += static_cast<double>(block.left2 + block.sums.error2);
  }
  return stats;
}

}  // namespace slimps

#endif  // SLIMPS_COMPRESS_CODEC_SPARSE_SELECT_CANDIDATE_LIST_H_
