// SPDX-License-Identifier: Apache-2.0
// Payload format "sparse": few elements, each with its index. The others are 0. Indices count
// within blocks of kBlockElements, so that each block decodes on its own.
//
//   byte  0      magic 0xB8
//         1      index coding: 0 packed, 1 delta, 2 seeded
//         2      value coding: 0 fp32, 1 fp16, 2 one value for all, 3 sign and one scale,
//                4 sign and two scales
//         3      flags, 0
//         4..7   elements, uint32
//         8..11  entries sent, uint32
//         12..15 scale 0, fp32: with value codings 2, 3, 4; otherwise +0
//         16..19 scale 1, fp32: with value coding 4; otherwise +0
//         20     packed, delta: for each block the number of entries before it, uint32
//                seeded: key0, key1, round, worker, partition of a PhiloxStream (philox.h),
//                uint32 each
//         then   values, in the order of the elements (seeded: in the order of the entries j below,
//                block by block):
//                  fp32, fp16: 4 or 2 bytes each
//                  one value:  nothing; all values are scale 0
//                  sign:       one bit each; entry i's is bit i % 8 of byte i / 8. 1: scale 0.
//                              0: minus scale 0 or, with two scales, scale 1. Bits past the last
//                              entry are 0
//         then   indices within the block, rising:
//                  packed: 12 bits each, entry i's from bit 12 * i on, lowest bit first. Bits past
//                          the last are 0
//                  delta:  for each block the number of bytes before it, uint32; then the bytes.
//                          The place is the block's begin at first, and the element behind an
//                          entry after that. A byte b < 255 is an entry b elements after the place.
//                          A byte 255 moves the place on by 255 elements; no block ends with one
//                  seeded: nothing
//
// Everything is little-endian.
//
// Seeded: let n be the elements, k the entries, and U = floor(w * n / 2^32), where w is word 0 of
// the stream's Philox block with counter word 0 = 0xffffffff. Then floor((e * k + U) / n) entries
// lie before an element e that begins a block. Let w_j be the stream's word of element
// 4096 * block + j. A block of m elements that gets c entries sends, for j = 0 .. c - 1,
//
//   (lo_j + floor(floor(w_(j+1) / 2^16) * (lo_(j+1) - lo_j) / 2^16) + floor(w_0 * m / 2^32)) mod m
//   with lo_j = floor(j * f / 2^16) and f = floor(2^16 * m / c)
//
// That is one element from each of c parts, all rotated by one random offset: k different elements,
// each sent with probability k / n.
//
// Worked example: 5 elements 0, 0.5, 0, 0, -2. Packed fp32, 35 bytes:
//   B8 00 00 00  05 00 00 00  02 00 00 00  00 00 00 00  00 00 00 00 | 00 00 00 00 |
//   00 00 00 3F  00 00 00 C0 | 01 40 00
// Delta with sign and scale 2 (-2 is its second entry), 31 bytes:
//   B8 01 03 00  05 00 00 00  02 00 00 00  00 00 00 40  00 00 00 00 | 00 00 00 00 | 01 |
//   00 00 00 00 | 01 02
//
// Size in bytes, with k entries of v bits and b = ceil(elements / 4096) blocks:
//
//   packed   20 + 4 * b + ceil(v * k / 8) + ceil(3 * k / 2)
//   delta    20 + 8 * b + ceil(v * k / 8) + k, and up to 16 * b more
//   seeded   40 + ceil(v * k / 8)
#ifndef SLIMPS_COMPRESS_FORMAT_SPARSE_H_
#define SLIMPS_COMPRESS_FORMAT_SPARSE_H_

#include <cstddef>
#include <cstdint>
#include <span>

#include "absl/status/status.h"
#include "compress/format/format.h"
#include "compress/format/philox.h"
#include "compress/kernels/kernels.h"

namespace slimps {

inline constexpr uint8_t kSparseMagic = 0xB8;
inline constexpr size_t kSparseHeaderBytes = 20;

enum class SparseIndices : uint8_t { kPacked = 0, kDelta = 1, kSeeded = 2 };
enum class SparseValues : uint8_t { kF32 = 0, kF16 = 1, kOne = 2, kSign = 3, kSignTwo = 4 };

// The header's fields, and where everything lies as a result.
struct SparseLayout {
  SparseIndices indices = SparseIndices::kPacked;
  SparseValues values = SparseValues::kF32;
  size_t elements = 0;
  size_t count = 0;
  float scale0 = 0, scale1 = 0;
  PhiloxStream stream = {};  // used with seeded indices only

  size_t blocks() const { return (elements + kBlockElements - 1) / kBlockElements; }

  // Returns the elements of the block. REQUIRES: block < blocks().
  size_t BlockElements(size_t block) const {
    const size_t rest = elements - block * kBlockElements;
    return rest < kBlockElements ? rest : kBlockElements;
  }
  size_t ValueBits() const;
  size_t ValueBytes() const { return (count * ValueBits() + 7) / 8; }
  size_t ValuesOffset() const;
  size_t IndicesOffset() const { return ValuesOffset() + ValueBytes(); }

  // Returns the size of the whole payload. `delta_bytes`: index bytes of all blocks, for delta
  // only.
  size_t PayloadBytes(size_t delta_bytes) const;
};

// Writes the header, and the stream of a seeded payload. The caller writes the directory. REQUIRES:
// `payload` has layout.ValuesOffset() bytes.
void BuildSparseHeader(const SparseLayout& layout, std::span<std::byte> payload);

// The indices of a seeded payload. Thread-safe: constant after construction.
class SeededIndices final {
 public:
  // REQUIRES: `kernels` outlives this.
  SeededIndices(const Kernels& kernels, const SparseLayout& layout);

  // Returns the number of entries before `block`. Block blocks() is allowed.
  size_t Before(size_t block) const;

  // Writes the indices of `blocks` blocks from `first` on, counted from the first block's begin.
  // REQUIRES: `index` has room for them and for 16 more.
  void Draw(size_t first, size_t blocks, uint32_t* index) const;

 private:
  const Kernels* const kernels_;
  const SparseLayout layout_;
  const SeededGrid grid_;
};

// Writes the entries of one block: rising indices within the block, and values. Returns how many.
// REQUIRES: `payload` is valid; `index` and `values` have room for kBlockElements + 16 each.
size_t ReadSparseBlock(const Kernels& kernels, std::span<const std::byte> payload, size_t block,
                       uint32_t* index, float* values);

// Checks all that ValidatePayload promises for this layout:
// - the header's fields and the length
// - both directories
// - indices rise and lie in their block
// - values and scales are finite
// - unused bits are 0
[[nodiscard]] absl::Status ValidateSparse(std::span<const std::byte> payload, size_t elements);

// Like Decode and DecodeAdd of format.h, with chosen kernels.
void DecodeSparse(const Kernels& kernels, std::span<const std::byte> payload, size_t elements,
                  size_t first, std::span<float> dst);
void DecodeAddSparse(const Kernels& kernels, std::span<const std::byte> payload, size_t elements,
                     size_t first, std::span<float> dst);

}  // namespace slimps

#endif  // SLIMPS_COMPRESS_FORMAT_SPARSE_H_
