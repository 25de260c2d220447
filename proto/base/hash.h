// SPDX-License-Identifier: Apache-2.0
// XXH3-64 of bytes: the checksum of payloads and the source of key ids. Thread-safe.
#ifndef SLIMPS_PROTO_BASE_HASH_H_
#define SLIMPS_PROTO_BASE_HASH_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace slimps {

uint64_t HashBytes(std::span<const std::byte> bytes);
uint64_t HashText(std::string_view text);

}  // namespace slimps

#endif  // SLIMPS_PROTO_BASE_HASH_H_
