// SPDX-License-Identifier: Apache-2.0
// Payload format "rotated": a "levels" payload of the tensor's blocks after the randomised Hadamard
// transform of compress/kernels/rotate.h. A receiver transforms each block back.
//
//   byte  0      magic 0xBD
//         1..3   0
//         4..7   elements, uint32
//         8..27  the stream of the random signs, uint32 each: low and high half of the key, round,
//                worker, partition (compress/format/philox.h)
//         28     a "levels" payload (levels.h) of RotatedLength(elements) elements: y
//
// Everything is little-endian. Each block of n elements decodes to the first n of x = D H y, where
// y has RotatedElements(n) elements. A block may grow by rounding and cancelling: any level times
// 4096 is finite.
//
// Worked example, 50 bytes: 3 elements, key 1, round 5, worker 2, partition 0. The block is padded
// to 16: 16 bits with one scale 0.5.
//   BD 00 00 00  03 00 00 00  01 00 00 00  00 00 00 00  05 00 00 00  02 00 00 00  00 00 00 00
//   B7 01 01 00  10 00 00 00  00 10 00 00  00 00 00 00  00 00 00 3F | 05 80
//
// Size in bytes: 28 more than the "levels" payload.
#ifndef SLIMPS_COMPRESS_FORMAT_ROTATED_H_
#define SLIMPS_COMPRESS_FORMAT_ROTATED_H_

#include <cstddef>
#include <cstdint>
#include <span>

#include "absl/status/status.h"
#include "compress/format/format.h"
#include "compress/format/philox.h"
#include "compress/kernels/kernels.h"

namespace slimps {

inline constexpr uint8_t kRotatedMagic = 0xBD;
inline constexpr size_t kRotatedHeaderBytes = 28;

// Returns how many elements the rotated blocks of a tensor have together.
constexpr size_t RotatedLength(size_t elements) {
  const size_t rest = elements % kBlockElements;
  return elements - rest + RotatedElements(rest);
}

// Writes the 28 header bytes.
// REQUIRES: payload.size() >= kRotatedHeaderBytes, RotatedLength(elements) <= kMaxLevelsElements.
void BuildRotatedHeader(size_t elements, const PhiloxStream& stream, std::span<std::byte> payload);

// Returns the stream of a valid payload's header.
PhiloxStream RotationOf(std::span<const std::byte> payload);

// Checks all that ValidatePayload promises for this format: the header's fields, the "levels"
// payload, and that everything decodes to finite numbers.
[[nodiscard]] absl::Status ValidateRotated(std::span<const std::byte> payload, size_t elements);

// Like Decode and DecodeAdd of format.h, with chosen kernels.
void DecodeRotated(const Kernels& kernels, std::span<const std::byte> payload, size_t first,
                   std::span<float> dst);
void DecodeAddRotated(const Kernels& kernels, std::span<const std::byte> payload, size_t first,
                      std::span<float> dst);

}  // namespace slimps

#endif  // SLIMPS_COMPRESS_FORMAT_ROTATED_H_
