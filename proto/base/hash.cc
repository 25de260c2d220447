#include "proto/base/hash.h"

#include <xxhash.h>

namespace slimps {

uint64_t HashBytes(std::span<const std::byte> bytes) {
  return XXH3_64bits(bytes.data(), bytes.size());
}

uint64_t HashText(std::string_view text) { return XXH3_64bits(text.data(), text.size()); }

}  // namespace slimps
