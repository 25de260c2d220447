// SPDX-License-Identifier: Apache-2.0
#include "proto/element_count.h"

namespace slimps {

std::optional<uint64_t> ElementCount(const wire::KeyInfo& info, uint64_t limit) {
  uint64_t count = 1;
  for (const int64_t dimension : info.shape()) {
    const uint64_t size = static_cast<uint64_t>(dimension);
    if (dimension < 0 || (size > 0 && count > limit / size)) return std::nullopt;
    count *= size;
  }
  return count;
}

}  // namespace slimps
