// SPDX-License-Identifier: Apache-2.0
// XXH3-64 compiled for AVX2. It is twice as fast as with the instructions that every x86-64 has.
// hash.cc chooses.
#ifndef SLIMPS_PROTO_BASE_HASH_AVX2_H_
#define SLIMPS_PROTO_BASE_HASH_AVX2_H_

#include <cstddef>
#include <cstdint>

namespace slimps {

// Returns what XXH3_64bits returns. Thread-safe.
// REQUIRES: the processor has AVX2.
uint64_t HashBytesAvx2(const void* bytes, size_t size);

}  // namespace slimps

#endif  // SLIMPS_PROTO_BASE_HASH_AVX2_H_
