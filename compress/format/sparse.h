// Payload format "sparse": few elements, each with its index; the others are 0. Indices count within blocks of
// kBlockElements, so that any block decodes on its own.
//
//   byte  0      magic 0xB8
//         1      index coding: 0 packed, 1 delta, 2 seeded
//         2      value coding: 0 fp32, 1 fp16, 2 one value for all, 3 sign and one scale, 4 sign and two scales
//         3      flags, 0
//         4..7   elements, uint32
//         8..11  entries sent, uint32
//         12..15 scale 0, fp32: value codings 2, 3, 4; else +0
//         16..19 scale 1, fp32: value coding 4; else +0
//         20     packed, delta: for each block the entries before it, uint32
//                seeded: key0, key1, round, worker, partition of a PhiloxStream (philox.h), uint32 each
//         then   values, in the order of the elements (seeded: of the entries j, below, block by block):
//                  fp32, fp16: 4 or 2 bytes each
//                  one value:  nothing, all are scale 0
//                  sign:       one bit each, entry i's is bit i % 8 of byte i / 8. 1: scale 0;
//                              0: minus scale 0, or, with two scales, scale 1. Bits past the last entry are 0
//         then   indices within the block, rising:
//                  packed: 12 bits each, entry i's at bit 12 * i, lowest first; bits past the last are 0
//                  delta:  for each block the bytes before it, uint32; then the bytes. A byte b < 255 is an entry b
//                          elements after the place next to the entry before (or after the block's begin); 255
//                          means 255 elements further on, and is not a block's last byte
//                  seeded: nothing
//
// Everything is little-endian. Seeded: with n elements, k entries and U = floor(w * n / 2^32) (w: word 0 of the stream's
// Philox block with counter word 0 = 0xffffffff), floor((e * k + U) / n) entries lie before element e, where e begins a
// block. With w_j the stream's word of element 4096 * block + j, a block of m elements that gets c of them sends
//
//   (lo_j + floor(floor(w_(j+1) / 2^16) * (lo_(j+1) - lo_j) / 2^16) + floor(w_0 * m / 2^32)) mod m     for j = 0 .. c - 1
//   lo_j = floor(j * f / 2^16), f = floor(2^16 * m / c)
//
// that is, one from each of c parts, all turned by a random angle: k different elements, each with probability k / n.
//
// Worked example: 5 elements 0, 0.5, 0, 0, -2, packed fp32, 35 bytes:
//   B8 00 00 00  05 00 00 00  02 00 00 00  00 00 00 00  00 00 00 00 | 00 00 00 00 | 00 00 00 3F  00 00 00 C0 | 01 40 00
// and as delta with sign and scale 2 (-2 is its second entry), 31 bytes:
//   B8 01 03 00  05 00 00 00  02 00 00 00  00 00 00 40  00 00 00 00 | 00 00 00 00 | 01 | 00 00 00 00 | 01 02
//
// Size in bytes, with k entries of v bits and b = ceil(elements / 4096) blocks: packed 20 + 4 * b + ceil(v * k / 8) +
// ceil(3 * k / 2); delta at least 20 + 8 * b + ceil(v * k / 8) + k and at most 16 * b more; seeded 40 + ceil(v * k / 8).
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

// What the header says, and so where everything lies.
struct SparseLayout {
  SparseIndices indices = SparseIndices::kPacked;
  SparseValues values = SparseValues::kF32;
  size_t elements = 0;
  size_t count = 0;
  float scale0 = 0, scale1 = 0;
  PhiloxStream stream = {};  // used when seeded

  size_t blocks() const { return (elements + kBlockElements - 1) / kBlockElements; }
  // REQUIRES: block < blocks().
  size_t BlockElements(size_t block) const {
    const size_t rest = elements - block * kBlockElements;
    return rest < kBlockElements ? rest : kBlockElements;
  }
  size_t ValueBits() const;
  size_t ValueBytes() const { return (count * ValueBits() + 7) / 8; }
  size_t ValuesOffset() const;
  size_t IndicesOffset() const { return ValuesOffset() + ValueBytes(); }
  // Of the whole payload. `delta_bytes`: of all blocks, for delta only.
  size_t PayloadBytes(size_t delta_bytes) const;
};

// REQUIRES: payload holds layout.ValuesOffset() bytes. The directory is left to the caller.
void BuildSparseHeader(const SparseLayout& layout, std::span<std::byte> payload);

// The indices of a seeded payload. Thread-safe: constant after construction.
class SeededIndices final {
 public:
  // `kernels` outlive this.
  SeededIndices(const Kernels& kernels, const SparseLayout& layout);

  // Entries before `block`, which may be blocks().
  size_t Before(size_t block) const;
  // Those of `blocks` blocks from `first` on, counted from the first one's begin. REQUIRES: room for as many and 16 more.
  void Draw(size_t first, size_t blocks, uint32_t* index) const;

 private:
  const Kernels* const kernels_;
  const SparseLayout layout_;
  const SeededGrid grid_;
};

// All that ValidatePayload checks for this layout: the header's fields, the length, both directories, that indices rise
// and lie in their block, that values and scales are finite, and that unused bits are 0.
[[nodiscard]] absl::Status ValidateSparse(std::span<const std::byte> payload, size_t elements);

// As Decode and DecodeAdd of format.h, with chosen kernels.
void DecodeSparse(const Kernels& kernels, std::span<const std::byte> payload, size_t elements,
                  size_t first, std::span<float> dst);
void DecodeAddSparse(const Kernels& kernels, std::span<const std::byte> payload, size_t elements,
                     size_t first, std::span<float> dst);

}  // namespace slimps

#endif  // SLIMPS_COMPRESS_FORMAT_SPARSE_H_
