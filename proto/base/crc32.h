// SPDX-License-Identifier: Apache-2.0
// CRC-32 of bytes as zlib, gzip and PNG have it, so that tools of any language can repeat it. It
// tells damage in one place for certain: every change within 32 bits, so every changed byte.
//
//   uint32_t crc = 0;                 // of no bytes
//   crc = Crc32(crc, first_part);
//   crc = Crc32(crc, second_part);    // of both parts together
//
// Pure. Thread-safe.
#ifndef SLIMPS_PROTO_BASE_CRC32_H_
#define SLIMPS_PROTO_BASE_CRC32_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace slimps {

// Returns the CRC of the bytes whose CRC is `before`, followed by `bytes`.
uint32_t Crc32(uint32_t before, std::span<const std::byte> bytes);

inline uint32_t Crc32(uint32_t before, std::string_view text) {
  return Crc32(before, std::as_bytes(std::span(text.data(), text.size())));
}

}  // namespace slimps

#endif  // SLIMPS_PROTO_BASE_CRC32_H_
