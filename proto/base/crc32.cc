// SPDX-License-Identifier: Apache-2.0
#include "proto/base/crc32.h"

#include <array>
#include <bit>
#include <cstring>

namespace slimps {
namespace {

static_assert(std::endian::native == std::endian::little, "eight bytes are read as one number");

// table[k][b] is what byte b does to the CRC when k bytes follow it, so that eight bytes are looked
// up together.
using Tables = std::array<std::array<uint32_t, 256>, 8>;

constexpr Tables MakeTables() {
  constexpr uint32_t kPolynomial = 0xEDB88320u;  // bits reversed
  Tables tables = {};
  for (uint32_t byte = 0; byte < 256; ++byte) {
    uint32_t crc = byte;
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1) != 0 ? kPolynomial : 0);
    tables[0][byte] = crc;
  }
  for (size_t k = 1; k < tables.size(); ++k) {
    for (uint32_t byte = 0; byte < 256; ++byte) {
      const uint32_t before = tables[k - 1][byte];
      tables[k][byte] = (before >> 8) ^ tables[0][before & 0xFF];
    }
  }
  return tables;
}

constexpr Tables kTables = MakeTables();

}  // namespace

uint32_t Crc32(uint32_t before, std::span<const std::byte> bytes) {
  uint32_t crc = ~before;
  while (bytes.size() >= kTables.size()) {
    uint64_t eight;
    std::memcpy(&eight, bytes.data(), sizeof eight);
    eight ^= crc;
    crc = 0;
    for (size_t i = 0; i < kTables.size(); ++i) {
      crc ^= kTables[kTables.size() - 1 - i][(eight >> (8 * i)) & 0xFF];
    }
    bytes = bytes.subspan(kTables.size());
  }
  for (const std::byte byte : bytes) {
    crc = (crc >> 8) ^ kTables[0][(crc ^ static_cast<uint32_t>(byte)) & 0xFF];
  }
  return ~crc;
}

}  // namespace slimps
