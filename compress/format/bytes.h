// SPDX-License-Identifier: Apache-2.0
// What the formats' sources share: reading and writing numbers in a payload, and the error for a
// malformed field.
#ifndef SLIMPS_COMPRESS_FORMAT_BYTES_H_
#define SLIMPS_COMPRESS_FORMAT_BYTES_H_

#include <bit>
#include <cstddef>
#include <cstring>
#include <span>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace slimps {

static_assert(std::endian::native == std::endian::little, "payloads are copied as they lie");

// Returns the number at `offset`. REQUIRES, here and below: offset + sizeof(T) <= bytes.size().
template <typename T>
T Load(std::span<const std::byte> bytes, size_t offset) {
  T value;
  std::memcpy(&value, bytes.data() + offset, sizeof value);
  return value;
}

template <typename T>
void Store(T value, std::span<std::byte> bytes, size_t offset) {
  std::memcpy(bytes.data() + offset, &value, sizeof value);
}

// Returns InvalidArgument: "FORMAT payload: FIELD: expected EXPECTED, got GOT".
inline absl::Status Malformed(std::string_view format, std::string_view field,
                              std::string_view expected, std::string_view got) {
  return absl::InvalidArgumentError(
      absl::StrCat(std::string(format), " payload: ", std::string(field), ": expected ",
                   std::string(expected), ", got ", std::string(got)));
}

}  // namespace slimps

#endif  // SLIMPS_COMPRESS_FORMAT_BYTES_H_
