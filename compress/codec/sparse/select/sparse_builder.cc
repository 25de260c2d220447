// SPDX-License-Identifier: Apache-2.0
#include "compress/codec/sparse/select/sparse_builder.h"

#include <algorithm>
#include <cstring>

namespace slimps {
namespace {

constexpr size_t kIndexBits = 12;  // of a packed index

SparseLayout Packed(SparseLayout shape, size_t count) {
  shape.indices = SparseIndices::kPacked;
  shape.count = count;
  return shape;
}

}  // namespace

size_t SparseBuilder::MaxPayloadBytes(SparseLayout shape, size_t count) {
  return Packed(shape, count).PayloadBytes(0);
}

SparseBuilder::SparseBuilder(const Kernels& kernels, const SparseLayout& shape,
                             std::span<std::byte> payload, EncodeWorkspace& workspace)
    : kernels_(kernels),
      payload_(payload),
      blocks_(workspace.Take<Block>(shape.blocks())),
      layout_(shape) {
  std::ranges::fill(blocks_, Block());
}

void SparseBuilder::SetBlock(size_t block, std::span<const uint32_t> index) {
  blocks_[block].count = static_cast<uint32_t>(index.size());
  blocks_[block].delta_bytes =
      static_cast<uint32_t>(kernels_.sparse.delta_bytes(index.data(), index.size()));
}

void SparseBuilder::Plan(float scale0, float scale1) {
  size_t count = 0, delta = 0;
  for (Block& block : blocks_) {
    block.before = static_cast<uint32_t>(count);
    block.delta_before = static_cast<uint32_t>(delta);
    count += block.count;
    delta += block.delta_bytes;
  }
  layout_ = Packed(layout_, count);
  layout_.scale0 = scale0;
  layout_.scale1 = scale1;
  SparseLayout delta_layout = layout_;
  delta_layout.indices = SparseIndices::kDelta;
  if (delta_layout.PayloadBytes(delta) < layout_.PayloadBytes(0)) layout_ = delta_layout;
  payload_bytes_ = layout_.PayloadBytes(delta);
  BuildSparseHeader(layout_, payload_);
  // The directories: the entries and, if delta-coded, the bytes before each block.
  for (size_t i = 0; i < blocks_.size(); ++i) {
    const Block& block = blocks_[i];
    std::memcpy(payload_.data() + kSparseHeaderBytes + 4 * i, &block.before, 4);
    if (layout_.indices != SparseIndices::kDelta) continue;
    std::memcpy(payload_.data() + layout_.IndicesOffset() + 4 * i, &block.delta_before, 4);
  }
}

void SparseBuilder::WriteBlock(size_t block, std::span<const uint32_t> index,
                               std::span<const float> values, float* decoded) {
  Block& its = blocks_[block];
  if (its.count == 0) return;
  WriteValues(its, values, decoded, its.signs);
  if (layout_.indices == SparseIndices::kDelta) {
    const size_t offset = layout_.IndicesOffset() + 4 * layout_.blocks() + its.delta_before;
    kernels_.sparse.encode_delta(index.data(), index.size(),
                                 reinterpret_cast<uint8_t*>(payload_.data()) + offset);
    return;
  }
  uint8_t packed[kBlockElements * kIndexBits / 8 + 2];
  kernels_.sparse.encode_packed(index.data(), index.size(), its.before % 2, packed);
  StoreInner(layout_.IndicesOffset(), kIndexBits * its.before,
             kIndexBits * (its.before + index.size()), packed, its.indices);
}

void SparseBuilder::WriteValues(const Block& block, std::span<const float> values, float* decoded,
                                Edges& edges) {
  const size_t first = block.before, n = values.size();
  std::byte* const begin = payload_.data() + layout_.ValuesOffset();
  switch (layout_.values) {
    case SparseValues::kF32:
      std::memcpy(begin + 4 * first, values.data(), values.size_bytes());
      std::memcpy(decoded, values.data(), values.size_bytes());
      return;
    case SparseValues::kF16:
      kernels_.raw.encode_f16(values.data(), nullptr, 1, n, begin + 2 * first);
      kernels_.raw.decode_f16(begin + 2 * first, n, decoded);
      return;
    case SparseValues::kOne:
      std::fill_n(decoded, n, layout_.scale0);
      return;
    case SparseValues::kSign:
    case SparseValues::kSignTwo: {
      uint8_t signs[kBlockElements / 8 + 1];
      kernels_.sparse.encode_signs(values.data(), n, first % 8, signs);
      kernels_.sparse.decode_signs(
          signs, first % 8, layout_.scale0,
          layout_.values == SparseValues::kSign ? -layout_.scale0 : layout_.scale1, n, decoded);
      StoreInner(layout_.ValuesOffset(), first, first + n, signs, edges);
      return;
    }
  }
}

void SparseBuilder::StoreInner(size_t offset, size_t first_bit, size_t last_bit,
                               const uint8_t* bits, Edges& edges) {
  const size_t begin = first_bit / 8, end = (last_bit + 7) / 8;
  size_t inner_begin = begin, inner_end = end;
  if (first_bit % 8 != 0) edges.first = bits[inner_begin++ - begin];
  if (last_bit % 8 != 0 && inner_end > inner_begin) edges.last = bits[--inner_end - begin];
  if (inner_end <= inner_begin) return;
  std::memcpy(payload_.data() + offset + inner_begin, bits + (inner_begin - begin),
              inner_end - inner_begin);
}

void SparseBuilder::JoinEdges(size_t offset, size_t entry_bits, Edges Block::*edges) {
  // A byte is set by the block in which it begins; later blocks add their bits. This goes in the
  // order of the blocks, so a byte's old content does not matter.
  for (const Block& block : blocks_) {
    if (block.count == 0) continue;
    const size_t first_bit = entry_bits * block.before;
    const size_t last_bit = first_bit + entry_bits * block.count;
    std::byte* const plane = payload_.data() + offset;
    if (first_bit % 8 != 0) plane[first_bit / 8] |= std::byte{(block.*edges).first};
    const bool one_byte = first_bit % 8 != 0 && last_bit / 8 == first_bit / 8;
    if (last_bit % 8 != 0 && !one_byte) plane[last_bit / 8] = std::byte{(block.*edges).last};
  }
}

size_t SparseBuilder::Finish() {
  if (layout_.ValueBits() == 1) JoinEdges(layout_.ValuesOffset(), 1, &Block::signs);
  if (layout_.indices == SparseIndices::kPacked) {
    JoinEdges(layout_.IndicesOffset(), kIndexBits, &Block::indices);
  }
  return payload_bytes_;
}

}  // namespace slimps
