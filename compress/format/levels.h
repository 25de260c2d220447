// SPDX-License-Identifier: Apache-2.0
// Payload format "levels": a few bits for each element, and one or two scales for each block of
// elements or one value for all.
//
//   byte  0      magic 0xB7
//         1      bits per element: 1, 2, 4 or 8
//         2      scales per block: 0, 1 or, with 1 and 2 bits, 2
//         3      map from levels to numbers, with 4 and 8 bits: 0 linear, 1 natural; otherwise 0
//         4..7   elements, uint32
//         8..9   elements per scale block, uint16: 4096; with 4 and 8 bits any power of two from
//                128 to 4096
//         10     largest level L, with 4 and 8 bits: 1 .. 7 and 1 .. 127; otherwise 0
//         11     0
//         12..15 value, fp32: the scale if there are no scales per block; otherwise +0
//         16     scales, fp32: those of block 0, then those of block 1, ...
//         then   with 1 and 2 bits planes: those of elements 0 .. 4095, then 4096 .. 8191, ...
//                with 4 and 8 bits codes: one after the other
//
// Everything is little-endian. Scales are finite, and so is what any level decodes to. Bits past
// the end are 0.
//
// 1 and 2 bits: a block of n elements has `bits` planes of ceil(n / 8) bytes each, one after the
// other. Element i's bit is bit i % 8 (1 << i % 8) of byte i / 8. Elements decode to:
//
//   scales   P           N             1 bit: plane 0     2 bits: plane 0, plane 1
//   0        value       -value        1: P               1, 0: P
//   1        scale       -scale        0: N               0, 1: N
//   2        1st scale   2nd scale                        0, 0 and 1, 1: zero
//
// Bits lie in planes, not in packed pairs: a comparison's mask is stored as the vector unit makes
// it.
//
// 4 and 8 bits: element i has a code c. With 4 bits c = level + 8 is a half of byte i / 2: the
// lower one for even i, the upper one for odd i. With 8 bits c = level + 128 is byte i. -L <= level
// <= L. A level decodes as follows, each product rounded once to fp32:
//
//   linear    level * scale. The encoder divides its norm by L, so that decoding is one
//             multiplication
//   natural   sign(level) * 2^(|level| - L) * scale, +0 for level 0. The scale is the norm itself
//
// Worked examples: 3 elements +, -, + in 1 bit with one scale 0.5, and levels 7, -1, 0 in 4 bits
// with value 0.5.
//   B7 01 01 00  03 00 00 00  00 10 00 00  00 00 00 00 | 00 00 00 3F | 05
//   B7 04 00 00  03 00 00 00  00 10 07 00  00 00 00 3F | 7F 08
//
// Exact size in bytes, with b = ceil(elements / elements per scale block):
//
//   1 and 2 bits   16 + 4 * scales * b + bits * ceil(elements / 8)
//   4 bits         16 + 4 * scales * b + ceil(elements / 2)
//   8 bits         16 + 4 * scales * b + elements
#ifndef SLIMPS_COMPRESS_FORMAT_LEVELS_H_
#define SLIMPS_COMPRESS_FORMAT_LEVELS_H_

#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>

#include "absl/status/status.h"
#include "compress/format/format.h"
#include "compress/kernels/kernels.h"

namespace slimps {

inline constexpr uint8_t kLevelsMagic = 0xB7;
inline constexpr size_t kLevelsHeaderBytes = 16;
inline constexpr size_t kMaxLevelsElements = std::numeric_limits<uint32_t>::max();

enum class LevelsMap : uint8_t { kLinear = 0, kNatural = 1 };

// The header's fields, and where everything lies as a result. A block here has kBlockElements,
// whatever the bucket.
struct LevelsLayout {
  uint8_t bits = 1;
  uint8_t scales_per_block = 0;
  size_t elements = 0;
  float value = 0;                 // used if scales_per_block is 0
  size_t bucket = kBlockElements;  // elements per scale block; divides kBlockElements
  uint8_t levels = 0;              // the largest level, with 4 and 8 bits
  LevelsMap map = LevelsMap::kLinear;

  static constexpr size_t kSmallestBucket = 128;

  bool packed() const { return bits >= 4; }  // true: codes, false: planes
  size_t blocks() const { return (elements + kBlockElements - 1) / kBlockElements; }

  // Returns the elements of the block. REQUIRES: block < blocks().
  size_t BlockElements(size_t block) const {
    const size_t rest = elements - block * kBlockElements;
    return rest < kBlockElements ? rest : kBlockElements;
  }
  size_t buckets() const { return (elements + bucket - 1) / bucket; }
  size_t ScaleOffset(size_t bucket_index) const {
    return kLevelsHeaderBytes + bucket_index * scales_per_block * sizeof(float);
  }

  // Returns where the block's codes or its plane 0 begin. Plane 1 begins PlaneBytes later.
  size_t PlanesOffset(size_t block) const {
    return ScaleOffset(buckets()) + block * bits * (kBlockElements / 8);
  }
  size_t PlaneBytes(size_t block) const { return (BlockElements(block) + 7) / 8; }
  size_t PayloadBytes() const {
    const size_t body = packed() ? (elements * bits + 7) / 8 : bits * ((elements + 7) / 8);
    return ScaleOffset(buckets()) + body;
  }
};

// Writes the 16 header bytes.

// REQUIRES: payload.size() >= kLevelsHeaderBytes, layout.elements <= kMaxLevelsElements.
void BuildLevelsHeader(const LevelsLayout& layout, std::span<std::byte> payload);

// Checks all that ValidatePayload promises for this format:
// - the header's fields and the length
// - everything decodes to finite numbers
// - no level is over the largest
// - bits past the last element are 0
[[nodiscard]] absl::Status ValidateLevels(std::span<const std::byte> payload, size_t elements);

// Returns the largest magnitude that any level could decode to, sent or not. REQUIRES: `payload` is
// valid.
float LargestLevel(std::span<const std::byte> payload);

// Like Decode and DecodeAdd of format.h, with chosen kernels.
void DecodeLevels(const Kernels& kernels, std::span<const std::byte> payload, size_t first,
                  std::span<float> dst);
void DecodeAddLevels(const Kernels& kernels, std::span<const std::byte> payload, size_t first,
                     std::span<float> dst);

}  // namespace slimps

#endif  // SLIMPS_COMPRESS_FORMAT_LEVELS_H_
