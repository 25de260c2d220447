// SPDX-License-Identifier: Apache-2.0
#include "proto/base/hash.h"

#include <xxhash.h>

#include <cstddef>
#include <cstdint>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "proto/base/hash_avx2.h"

namespace slimps {
namespace {

std::vector<std::byte> RandomBytes(size_t size) {
  std::mt19937_64 random(size);
  std::vector<std::byte> bytes(size);
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
  return bytes;
}

// Two machines with different processors agree on a hash only if both equal the library's. The
// library's own tests check it against the specification.
TEST(Hash, IsXxh3WhateverTheLengthAndWhereverBytesLie) {
  const std::vector<std::byte> bytes = RandomBytes(70000);
  std::vector<size_t> lengths;
  for (size_t length = 0; length <= 600; ++length) lengths.push_back(length);
  for (const size_t block : {1024, 2048, 16384, 65536}) {
    for (size_t length = block - 65; length <= block + 65; ++length) lengths.push_back(length);
  }
  const bool has_avx2 = __builtin_cpu_supports("avx2");
  for (const size_t length : lengths) {
    for (const size_t start : {size_t{0}, size_t{1}, size_t{31}}) {
      const std::span<const std::byte> part = std::span(bytes).subspan(start, length);
      const uint64_t expected = XXH3_64bits(part.data(), part.size());
      ASSERT_EQ(HashBytes(part), expected) << length << " bytes from " << start;
      if (has_avx2) {
        ASSERT_EQ(HashBytesAvx2(part.data(), part.size()), expected) << length;
      }
    }
  }
}

// These values are in proto/README.md and in xxHash's specification, so that other programs can
// check theirs.
TEST(Hash, KnownValues) {
  const std::vector<float> pushed = {1.0f, -2.0f};
  EXPECT_EQ(HashBytes(std::as_bytes(std::span(pushed))), 0x28a0ba9c345d3723u);
  EXPECT_EQ(HashText(""), 0x2d06800538d394c2u);
  EXPECT_EQ(HashBytes({}), 0x2d06800538d394c2u);
}

}  // namespace
}  // namespace slimps
