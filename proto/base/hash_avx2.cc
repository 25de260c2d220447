// SPDX-License-Identifier: Apache-2.0
// Compiled for AVX2, so it uses nothing from elsewhere that could be emitted out of line. The
// library's header holds all of XXH3 and compiles it for the instructions in use here. Debian's
// library itself is compiled for SSE2.
#include "proto/base/hash_avx2.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace slimps {

uint64_t HashBytesAvx2(const void* bytes, size_t size) { return XXH3_64bits(bytes, size); }

}  // namespace slimps
