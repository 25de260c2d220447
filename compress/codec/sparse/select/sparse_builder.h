// SPDX-License-Identifier: Apache-2.0
// SparseBuilder: writes a sparse payload once it is known what each block sends.
//
//   const SparseLayout shape = {.values = SparseValues::kF16, .elements = n};
//   SparseBuilder builder(kernels, shape, payload, workspace);
//   builder.SetBlock(block, index);                     // every block
//   builder.Plan(scale0, scale1);                       // index coding and header
//   builder.WriteBlock(block, index, values, decoded);  // every block, in their order
//   size_t bytes = builder.payload_bytes();
//
// Thread-compatible.
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

  // Writes the block's entries. Writes to `decoded` what each of `values` decodes to.
  // REQUIRES: Plan was called, and WriteBlock for all blocks before; `index` holds the indices that
  // SetBlock was given.
  void WriteBlock(size_t block, std::span<const uint32_t> index, std::span<const float> values,
                  float* decoded);

  // REQUIRES: Plan was called.
  size_t payload_bytes() const { return payload_bytes_; }

  const SparseLayout& layout() const { return layout_; }

 private:
  struct Block {
    uint32_t count = 0;
    uint32_t before = 0;  // entries of the blocks before it
    uint32_t delta_bytes = 0;
    uint32_t delta_before = 0;  // delta_bytes of the blocks before it
  };

  void WriteValues(size_t first, std::span<const float> values, float* decoded);
  // Copies bits [first_bit, last_bit) of a plane at `offset`. bits[0] holds the first of them, and
  // its bits before that are 0, as are those after the last one.
  void StoreBits(size_t offset, size_t first_bit, size_t last_bit, const uint8_t* bits);

  const Kernels& kernels_;
  const std::span<std::byte> payload_;
  const std::span<Block> blocks_;
  SparseLayout layout_;
  size_t payload_bytes_ = 0;
};

}  // namespace slimps

#endif  // SLIMPS_COMPRESS_CODEC_SPARSE_SELECT_SPARSE_BUILDER_H_
