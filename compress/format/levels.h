// Payload format "levels": one or two bits per element, with no, one or two scales per block of
// kBlockElements.
//
//   byte  0      magic 0xB7
//         1      bits per element: 1 or 2
//         2      scales per block: 0, 1 or 2
//         3      flags, 0
//         4..7   elements, uint32
//         8..11  elements per block, uint32, kBlockElements
//         12..15 value, fp32: the level where there is no scale; else +0
//         16     scales, fp32: those of block 0, then block 1, ...
//         then   bit planes: those of block 0, then block 1, ...
//
// Everything is little-endian. A block of n elements has `bits` planes of ceil(n / 8) bytes each,
// one after the other; element i's bit is bit i % 8 (1 << i % 8) of byte i / 8. Bits past n are 0.
// What a block's elements decode to:
//
//   scales   P           N             1 bit: plane 0     2 bits: plane 0, plane 1
//   0        value       -value        1: P               1, 0: P
//   1        scale       -scale        0: N               0, 1: N
//   2        1st scale   2nd scale                        0, 0 and 1, 1: zero
//
// Worked example, 3 elements +, -, + with one scale 0.5, 21 bytes:
//   B7 01 01 00  03 00 00 00  00 10 00 00  00 00 00 00 | 00 00 00 3F | 05
//
// Size in bytes, with b = ceil(elements / 4096): 16 + 4 * scales * b + bits * (ceil(elements / 8)),
// exactly, since a full block's planes are whole bytes. One bit and one scale is 1/31.75 of fp32
// for large tensors. Planes, not packed pairs: a comparison's mask is stored as it comes out of the
// vector unit.
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

// What the header says, and so where everything lies.
struct LevelsLayout {
  uint8_t bits = 1;
  uint8_t scales_per_block = 0;
  size_t elements = 0;
  float value = 0;  // used when scales_per_block is 0

  size_t blocks() const { return (elements + kBlockElements - 1) / kBlockElements; }
  // REQUIRES: block < blocks().
  size_t BlockElements(size_t block) const {
    const size_t rest = elements - block * kBlockElements;
    return rest < kBlockElements ? rest : kBlockElements;
  }
  size_t ScaleOffset(size_t block) const {
    return kLevelsHeaderBytes + block * scales_per_block * sizeof(float);
  }
  // Of the block's plane 0; plane 1 follows it PlaneBytes later.
  size_t PlanesOffset(size_t block) const {
    return ScaleOffset(blocks()) + block * bits * (kBlockElements / 8);
  }
  size_t PlaneBytes(size_t block) const { return (BlockElements(block) + 7) / 8; }
  size_t PayloadBytes() const { return ScaleOffset(blocks()) + bits * ((elements + 7) / 8); }
};

// REQUIRES: payload.size() >= kLevelsHeaderBytes, layout.elements <= kMaxLevelsElements.
void BuildLevelsHeader(const LevelsLayout& layout, std::span<std::byte> payload);

// All that ValidatePayload checks for this format: the header's fields, the length, that scales are
// finite and that bits past the last element are 0.
[[nodiscard]] absl::Status ValidateLevels(std::span<const std::byte> payload, size_t elements);

// As Decode and DecodeAdd of format.h, with chosen kernels.
void DecodeLevels(const Kernels& kernels, std::span<const std::byte> payload, size_t first,
                  std::span<float> dst);
void DecodeAddLevels(const Kernels& kernels, std::span<const std::byte> payload, size_t first,
                     std::span<float> dst);

}  // namespace slimps

#endif  // SLIMPS_COMPRESS_FORMAT_LEVELS_H_
