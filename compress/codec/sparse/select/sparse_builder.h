// SPDX-License-Identifier: Apache-2.0
// SparseBuilder: writes a sparse payload once it is known what each block sends. Several threads
// fill the blocks.
//
//   const SparseLayout shape = {.values = SparseValues::kF16, .elements = n};
//   SparseBuilder builder(kernels, shape, payload, workspace);
//   builder.SetBlock(block, index);                     // every block once, any threads
//   builder.Plan(scale0, scale1);                       // one thread: index coding and header
//   builder.WriteBlock(block, index, values, decoded);  // every block once, any threads
//   size_t bytes = builder.Finish();                    // one thread
//
// Thread-compatible, except that threads may call SetBlock and WriteBlock for different blocks at
// the same time. The bytes do not depend on the threads: where two blocks share a byte, Finish
// joins their bits.
#ifndef SLIMPS_COMPRESS_CODEC_SPARSE_SELECT_SPARSE_BUILDER_H_
#define SLIMPS_COMPRESS_CODEC_SPARSE_SELECT_SPARSE_BUILDER_H_

#include <cstddef>
#include <cstdint>
#include <span>

#include "compress/codec/encode_run.h"
#include "compress/format/sparse.h"
#include "compress/kernels/kernels.h"

namespace slimps {

class SparseBuilder final {
 public:
  // Returns the most bytes that `count` entries take, whatever their indices. `shape`: values and
  // elements.
  static size_t MaxPayloadBytes(SparseLayout shape, size_t count);

  // `shape`: values and elements; Plan determines the rest. `payload` and `workspace` outlive this.
  // REQUIRES: `payload` holds MaxPayloadBytes of the number of entries that will be sent.
  SparseBuilder(const Kernels& kernels, const SparseLayout& shape, std::span<std::byte> payload,
                EncodeWorkspace& workspace);

  // Sets the indices that the block will send, in rising order.
  void SetBlock(size_t block, std::span<const uint32_t> index);

  // Picks the index coding that makes the payload smaller, and writes the header and the
  // directories.
  // REQUIRES: SetBlock was called for every block.
  void Plan(float scale0, float scale1);

  // Returns the number of entries before `block`.
  // REQUIRES: Plan was called; block < blocks.
  size_t Before(size_t block) const { return blocks_[block].before; }

  // Writes the block's entries. Writes to `decoded` what each of `values` decodes to.
  // REQUIRES: Plan was called; `index` holds the indices given to SetBlock.
  void WriteBlock(size_t block, std::span<const uint32_t> index, std::span<const float> values,
                  float* decoded);

  // Joins the bytes that blocks share, and returns the payload's length.
  // REQUIRES: WriteBlock was called for every block.
  size_t Finish();

  const SparseLayout& layout() const { return layout_; }

 private:
  // Bits that a block adds to a byte which it may share with its neighbours.
  struct Edges {
    uint8_t first = 0, last = 0;
  };
  struct Block {
    uint32_t count = 0;
    uint32_t before = 0;  // entries of the blocks before it
    uint32_t delta_bytes = 0;
    uint32_t delta_before = 0;  // delta_bytes of the blocks before it
    Edges signs, indices;
  };

  void WriteValues(const Block& block, std::span<const float> values, float* decoded, Edges& edges);
  // Copies bits [first_bit, last_bit) of a plane at `offset`; bits[0] holds the first of them.
  // Bytes at either end that other blocks may share go to `edges` instead.
  void StoreInner(size_t offset, size_t first_bit, size_t last_bit, const uint8_t* bits,
                  Edges& edges);
  // Writes the bytes that blocks share: threads must not write the same byte.
  void JoinEdges(size_t offset, size_t entry_bits, Edges Block::*edges);

  const Kernels& kernels_;
  const std::span<std::byte> payload_;
  const std::span<Block> blocks_;
  SparseLayout layout_;
  size_t payload_bytes_ = 0;
};

}  // namespace slimps

#endif  // SLIMPS_COMPRESS_CODEC_SPARSE_SELECT_SPARSE_BUILDER_H_
