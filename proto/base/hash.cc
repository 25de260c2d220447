// SPDX-License-Identifier: Apache-2.0
#include "proto/base/hash.h"

#include <xxhash.h>

#include "proto/base/hash_avx2.h"

namespace slimps {
namespace {

bool HasAvx2() {
  __builtin_cpu_init();
  return __builtin_cpu_supports("avx2");
}

}  // namespace

uint64_t HashBytes(std::span<const std::byte> bytes) {
  static const bool has_avx2 = HasAvx2();
  if (has_avx2) return HashBytesAvx2(bytes.data(), bytes.size());
  return XXH3_64bits(bytes.data(), bytes.size());
}

uint64_t HashText(std::string_view text) { return XXH3_64bits(text.data(), text.size()); }

}  // namespace slimps
