// Compiled for AVX2: uses nothing from elsewhere that could be emitted out of line. The library's
// header holds all of XXH3, and makes it of the instructions that it is compiled for; Debian's
// library itself is made for SSE2.
#include "proto/base/hash_avx2.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace slimps {

uint64_t HashBytesAvx2(const void* bytes, size_t size) { return XXH3_64bits(bytes, size); }

}  // namespace slimps
