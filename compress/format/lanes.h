// SPDX-License-Identifier: Apache-2.0
// Payload format "rotated" with integers that a server adds up without decoding them: a worker's
// codes of 4 bits, or a sum of several workers' levels as lanes of 8 or 16 bits. Payloads whose
// rotations and scales are equal are summed as integers and rotated back once for all.
//
//   byte  0      magic 0xBC
//         1      bits per element: 4, 8 or 16
//         2..3   the largest level L, uint16: with 4 bits 15 .. 31, otherwise 1 .. 255 or 65535
//         4..7   elements, uint32
//         8..27  the stream of the rotation's signs, as in rotated.h
//         28..35 XXH3-64 of the scales' bytes, uint64: equal scales are told by it
//         36     with 4 bits a table T of 16 rising bytes, T[0] = 0 and T[15] = L
//         then   scales, fp32, finite, +0 or more: one per block
//         then   for each block of n elements RotatedElements(n) numbers of that many bits: codes
//                of 4 bits as in levels.h, or lanes, little-endian
//
// A code c stands for the level T[c], a lane for itself. A level v decodes to (2 v - L) * scale,
// one product, and a block to x = D H y as in rotated.h. So the sum of payloads with one scale has
// the levels' sums, and the sum of their L. Any decoded number times 4096 is finite.
//
// Size in bytes, with m = RotatedLength(elements): 36, or 52 with 4 bits, + 4 * ceil(elements /
// 4096) + m * bits / 8.
#ifndef SLIMPS_COMPRESS_FORMAT_LANES_H_
#define SLIMPS_COMPRESS_FORMAT_LANES_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "absl/status/status.h"
#include "compress/format/format.h"
#include "compress/format/philox.h"
#include "compress/format/rotated.h"
#include "compress/kernels/kernels.h"

namespace slimps {

inline constexpr uint8_t kLanesMagic = 0xBC;
inline constexpr size_t kLanesHeaderBytes = 36;
inline constexpr uint32_t kMaxLane = 65535;
inline constexpr size_t kCodeLevels = 16;

using LevelTable = std::array<uint8_t, kCodeLevels>;

// The header's fields, and where everything lies as a result.
struct LanesLayout {
  uint8_t bits = 4;
  uint32_t largest = 0;
  size_t elements = 0;
  PhiloxStream stream = {};
  LevelTable table = {};  // used with 4 bits

  // Returns the fewest bits of lanes up to `largest`. REQUIRES: largest <= kMaxLane.
  static uint8_t BitsOf(uint32_t largest) { return largest <= 255 ? 8 : 16; }

  size_t blocks() const { return (elements + kBlockElements - 1) / kBlockElements; }
  size_t ScaleOffset(size_t block) const {
    return kLanesHeaderBytes + (bits == 4 ? kCodeLevels : 0) + block * sizeof(float);
  }
  size_t BlockOffset(size_t block) const {
    return ScaleOffset(blocks()) + block * (kBlockElements * bits / 8);
  }
  size_t PayloadBytes() const { return ScaleOffset(blocks()) + RotatedLength(elements) * bits / 8; }
};

// True if a payload of format "rotated", valid or not, is meant to have this layout.
inline bool HasLanes(std::span<const std::byte> payload) {
  return !payload.empty() && payload[0] == std::byte{kLanesMagic};
}

// Reads a valid payload's header.
LanesLayout LanesLayoutOf(std::span<const std::byte> payload);

// Writes the header, and its hash from the scales, which are already in their places.
// REQUIRES: payload.size() >= layout.PayloadBytes().
void BuildLanesHeader(const LanesLayout& layout, std::span<std::byte> payload);

// Checks all that ValidatePayload promises for this layout: every rule above. REQUIRES: HasLanes.
[[nodiscard]] absl::Status ValidateLanes(std::span<const std::byte> payload, size_t elements);

// Returns L of a valid payload.
uint32_t LargestLane(std::span<const std::byte> payload);

// True if both may be summed as integers: their elements, streams and scales are equal.
// REQUIRES: both are valid and have lanes.
bool HaveOneScale(std::span<const std::byte> a, std::span<const std::byte> b);

// The sum of several payloads' levels in one block. Thread-compatible.
class LaneSum final {
 public:
  LaneSum(const Kernels& kernels, size_t elements, size_t block);

  // Adds a payload's levels. It must live until the next Add or Restore.
  // REQUIRES: it is valid and has lanes, HaveOneScale with all others, and largest() stays at most
  // kMaxLane.
  void Add(std::span<const std::byte> payload);

  uint32_t largest() const { return largest_; }

  // Returns the sums of the block's rotated elements.
  std::span<const uint32_t> Sums();

  // Sets dst[i] to the decoded sum, or adds it, by `back`: kernels.rotate.restore or add.
  // REQUIRES: a payload was added; `dst` is the whole block.
  void Restore(decltype(RotateKernels::restore) back, std::span<float> dst);

 private:
  void Flush();

  static constexpr size_t kMaxTerms = 8;

  const Kernels& kernels_;
  const size_t block_;
  const size_t length_;  // rotated elements
  uint32_t largest_ = 0;
  std::span<const std::byte> last_;
  // Codes that wait to be added together, in bytes: they have one table.
  std::array<const uint8_t*, kMaxTerms> terms_ = {};
  size_t waiting_ = 0;
  uint32_t waiting_largest_ = 0;
  const uint8_t* table_ = nullptr;
  alignas(64) std::array<uint32_t, kBlockElements> lanes_;
};

// Writes the sum of the payloads as one payload of lanes. It is valid if LanesSumIsFinite.
// REQUIRES: there is a payload; as LaneSum::Add; out.size() >= LanesSumBytes(payloads).
size_t LanesSumBytes(std::span<const PayloadView> payloads);
bool LanesSumIsFinite(std::span<const PayloadView> payloads);
void BuildLanesSum(const Kernels& kernels, std::span<const PayloadView> payloads,
                   std::span<std::byte> out);

// Like Decode and DecodeAdd of format.h, with chosen kernels.
void DecodeLanes(const Kernels& kernels, std::span<const std::byte> payload, size_t first,
                 std::span<float> dst);
void DecodeAddLanes(const Kernels& kernels, std::span<const std::byte> payload, size_t first,
                    std::span<float> dst);

}  // namespace slimps

#endif  // SLIMPS_COMPRESS_FORMAT_LANES_H_
