// SparseBuilder: writes a sparse payload whose blocks several threads fill, once it is known what each block sends.
//
//   SparseBuilder builder(kernels, {.values = SparseValues::kF16, .elements = n}, payload, workspace);
//   builder.SetBlock(block, index);                  // every block once, any threads
//   builder.Plan(scale0, scale1);                    // one thread: picks the smaller index coding, writes the header
//   builder.WriteBlock(block, index, values, decoded);   // every block once, any threads
//   size_t bytes = builder.Finish();                 // one thread
//
// Thread-compatible, except that calls for different blocks may run at the same time. The bytes do not depend on the
// threads: where two blocks share a byte, Finish puts their bits together.
#ifndef SLIMPS_COMPRESS_CODEC_SPARSE_BUILDER_H_
#define SLIMPS_COMPRESS_CODEC_SPARSE_BUILDER_H_

#include <cstddef>
#include <cstdint>
#include <span>

#include "compress/codec/encode_run.h"
#include "compress/format/sparse.h"
#include "compress/kernels/kernels.h"

namespace slimps {

class SparseBuilder final {
 public:
  // The most bytes that `count` entries take, whatever the indices. `shape`: values and elements.
  static size_t MaxPayloadBytes(SparseLayout shape, size_t count);

  // `shape`: values and elements; the rest is found out. `payload` and `workspace` outlive this.
  // REQUIRES: payload holds MaxPayloadBytes of what will be sent.
  SparseBuilder(const Kernels& kernels, const SparseLayout& shape, std::span<std::byte> payload,
                EncodeWorkspace& workspace);

  // The indices that the block will send, rising.
  void SetBlock(size_t block, std::span<const uint32_t> index);
  // REQUIRES: SetBlock was called for every block.
  void Plan(float scale0, float scale1);
  // Entries before `block`. REQUIRES: Plan was called; block < blocks.
  size_t Before(size_t block) const { return blocks_[block].before; }
  // What each of `values` decodes to goes to `decoded`. REQUIRES: the indices of SetBlock.
  void WriteBlock(size_t block, std::span<const uint32_t> index, std::span<const float> values,
                  float* decoded);
  // The payload's length. REQUIRES: WriteBlock was called for every block.
  size_t Finish();

  const SparseLayout& layout() const { return layout_; }

 private:
  // Bits that a block adds to a byte which it may share with its neighbours.
  struct Edges {
    uint8_t first = 0, last = 0;
  };
  struct Block {
    uint32_t count = 0;
    uint32_t before = 0;  // entries of the blocks before
    uint32_t delta_bytes = 0;
    uint32_t delta_before = 0;
    Edges signs, indices;
  };

  void WriteValues(const Block& block, std::span<const float> values, float* decoded, Edges& edges);
  // Copies bits [first_bit, last_bit) of a plane at `offset`, of which bits[0] holds the first, but for the bytes at
  // the ends that are not wholly the block's.
  void StoreInner(size_t offset, size_t first_bit, size_t last_bit, const uint8_t* bits,
                  Edges& edges);
  void JoinEdges(size_t offset, size_t entry_bits, Edges Block::*edges);

  const Kernels& kernels_;
  const std::span<std::byte> payload_;
  const std::span<Block> blocks_;
  SparseLayout layout_;
  size_t payload_bytes_ = 0;
};

}  // namespace slimps

#endif  // SLIMPS_COMPRESS_CODEC_SPARSE_BUILDER_H_
