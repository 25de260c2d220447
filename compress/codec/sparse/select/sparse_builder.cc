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
  const Block& its = blocks_[block];
  if (its.count == 0) return;
  WriteValues(its.before, values, decoded);
  if (layout_.indices == SparseIndices::kDelta) {
    const size_t offset = layout_.IndicesOffset() + 4 * layout_.blocks() + its.delta_before;
    kernels_.sparse.encode_delta(index.data(), index.size(),
                                 reinterpret_cast<uint8_t*>(payload_.data()) + offset);
    return;
  }
  uint8_t packed[kBlockElements * kIndexBits / 8 + 2];
  kernels_.sparse.encode_packed(index.data(), index.size(), its.before % 2, packed);
  StoreBits(layout_.IndicesOffset(), kIndexBits * its.before,
            kIndexBits * (its.before + index.size()), packed);
}

void SparseBuilder::WriteValues(size_t first, std::span<const float> values, float* decoded) {
  const size_t n = values.size();
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
      StoreBits(layout_.ValuesOffset(), first, first + n, signs);
      return;
    }
  }
}

void SparseBuilder::StoreBits(size_t offset, size_t first_bit, size_t last_bit,
                              const uint8_t* bits) {
  std::byte* const out = payload_.data() + offset + first_bit / 8;
  // The blocks before have set the bits before the first one.
  const std::byte before = first_bit % 8 == 0 ? std::byte{0} : *out;
  std::memcpy(out, bits, (last_bit + 7) / 8 - first_bit / 8);
  *out |= before;
}

}  // namespace slimps
