// SPDX-License-Identifier: Apache-2.0
// Payload format "sparse" with indices within bins: AdaComp's entries of 8 and 16 bits, with one
// scale.
//
// Elements lie in bins of a fixed length. The last bin may be shorter. Blocks of kBlockElements cut
// bins into pieces, so that each block can be decoded on its own.
//
//   byte  0      magic 0xB9
//         1      bits per entry: 8 for bins of up to 64 elements, otherwise 16. (AdaComp's paper
//                has 8 for bins under 64. Indices of bins of 64 fit as well: an extension)
//         2..3   bin length L, uint16, 1 .. 16384
//         4..7   elements, uint32
//         8..11  scale, fp32, finite, +0 or more
//         12     directory, uint32 per block: entries in this block and all before it
//         then   bitmaps, one per block: bit i % 8 (1 << i % 8) of byte i / 8 is set if the block's
//                piece i has entries. A block cuts at most 4094 / L + 2 bins, so each bitmap has
//                (4094 / L + 9) / 8 bytes. The last block's has (its pieces + 7) / 8. Bits past
//                the pieces are 0
//         then   entries, in rising order of their elements:
//
//                bits       index in the bin   sign (1: -scale, 0: +scale)   last of its piece
//                8          0 .. 5             6                             7
//                16         0 .. 13            14                            15
//
// Everything is little-endian. Worked example, 20 bytes: 7 elements in bins of 3 with scale 0.5:
// +0.5 at 1, -0.5 at 2 and at 6.
//   B9 08 03 00  07 00 00 00  00 00 00 3F | 03 00 00 00 | 05 | 01 C2 C0
//
// Size in bytes, with b = ceil(elements / 4096): 12 + 4 * b + the bitmaps + 1 or 2 for each entry.
// Beside the entries a block takes 15 bytes with bins of 50, and 6 with bins of 500. That is 4 and
// 7 % more than the 5 entries per bin that AdaComp counts with.
#ifndef SLIMPS_COMPRESS_FORMAT_BINS_H_
#define SLIMPS_COMPRESS_FORMAT_BINS_H_

#include <cstddef>
#include <cstdint>
#include <span>

#include "absl/status/status.h"
#include "compress/format/format.h"
#include "compress/kernels/kernels.h"

namespace slimps {

inline constexpr uint8_t kBinsMagic = 0xB9;
inline constexpr size_t kBinsHeaderBytes = 12;
inline constexpr uint32_t kMaxBinLength = 16384;

// The header's fields, and where everything lies as a result. REQUIRES everywhere: block <
// blocks().
struct BinsLayout {
  uint32_t bin_length = 1;
  size_t elements = 0;  // less than 2^32

  size_t blocks() const { return (elements + kBlockElements - 1) / kBlockElements; }
  size_t bins() const { return (elements + bin_length - 1) / bin_length; }
  size_t entry_bytes() const { return bin_length <= 64 ? 1 : 2; }

  // Returns the element behind the block's last.
  size_t BlockEnd(size_t block) const {
    const size_t rest = elements - block * kBlockElements;
    return block * kBlockElements + (rest < kBlockElements ? rest : kBlockElements);
  }

  // Returns the bin that the block's piece 0 belongs to.
  size_t FirstBin(size_t block) const { return BinOf(block * kBlockElements); }
  size_t Pieces(size_t block) const { return BinOf(BlockEnd(block) - 1) - FirstBin(block) + 1; }

  // True if piece 0 belongs to a bin that begins in an earlier block.
  bool CutsBin(size_t block) const { return block * kBlockElements % bin_length != 0; }

  // Returns the first element of the first bin that begins in the block or later. `elements`: no
  // bin does. Block blocks() is allowed.
  size_t GroupBegin(size_t block) const {
    const size_t bins_before = (block * kBlockElements + bin_length - 1) / bin_length;
    return bins_before * bin_length < elements ? bins_before * bin_length : elements;
  }

  static size_t DirectoryOffset(size_t block) {
    return kBinsHeaderBytes + block * sizeof(uint32_t);
  }
  size_t BitmapStride() const { return (uint32_t{kBlockElements - 2} / bin_length + 9) / 8; }
  size_t BitmapOffset(size_t block) const {
    return DirectoryOffset(blocks()) + block * BitmapStride();
  }
  size_t EntriesOffset() const {
    if (elements == 0) return kBinsHeaderBytes;
    return BitmapOffset(blocks() - 1) + (Pieces(blocks() - 1) + 7) / 8;
  }
  size_t PayloadBytes(size_t entries) const { return EntriesOffset() + entries * entry_bytes(); }

 private:
  // Elements are counted in 32 bits: a 32-bit division takes a third of the time.
  size_t BinOf(size_t element) const { return static_cast<uint32_t>(element) / bin_length; }
};

// Writes the header without the directory. REQUIRES: payload.size() >= kBinsHeaderBytes; 1 <=
// bin_length <= kMaxBinLength; the scale obeys the rules above.
void BuildBinsHeader(const BinsLayout& layout, float scale, std::span<std::byte> payload);

// Writes the directory's number for `block`: the entries in it and in all blocks before.
void BuildBinsEnd(size_t block, size_t entries, std::span<std::byte> payload);

// Checks all that ValidatePayload promises for this layout: every rule above.
[[nodiscard]] absl::Status ValidateBins(std::span<const std::byte> payload, size_t elements);

// Gives a valid payload's blocks in the form that kernels take. Thread-safe: constant after
// construction.
class BinsReader {
 public:
  // Reads the header only. Block() reads the rest. REQUIRES: the header is valid.
  explicit BinsReader(std::span<const std::byte> payload);

  BinBlock Block(size_t block) const;

 private:
  const std::span<const std::byte> payload_;
  const BinsLayout layout_;
  const float scale_;
  // Cached: their divisions would cost more than a block with few entries.
  const size_t entries_offset_, bitmaps_offset_, bitmap_stride_;
};

// Prepares for `block` to be decoded to `dst`, or subtracted from it, soon: if the block has few
// entries, prefetches the memory that they touch. With many entries most cache lines are touched
// one after the other, and hardware prefetches them by itself.
void PrefetchBins(const Kernels& kernels, const BinBlock& block, const float* dst);

// Like Decode and DecodeAdd of format.h, with chosen kernels.
void DecodeBins(const Kernels& kernels, std::span<const std::byte> payload, size_t elements,
                size_t first, std::span<float> dst);
void DecodeAddBins(const Kernels& kernels, std::span<const std::byte> payload, size_t elements,
                   size_t first, std::span<float> dst);

}  // namespace slimps

#endif  // SLIMPS_COMPRESS_FORMAT_BINS_H_
