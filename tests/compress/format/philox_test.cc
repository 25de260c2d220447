// SPDX-License-Identifier: Apache-2.0
#include "compress/format/philox.h"

#include <array>

#include "gtest/gtest.h"

namespace slimps {
namespace {

using Words = std::array<uint32_t, 4>;

// The known answers that were published with the generator (Random123, kat_vectors, philox4x32 with
// 10 rounds).
TEST(Philox, GivesThePublishedKnownAnswers) {
  constexpr uint32_t kOnes = 0xffffffff;
  EXPECT_EQ(Philox({0, 0, 0, 0}, {0, 0}), (Words{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(Philox({kOnes, kOnes, kOnes, kOnes}, {kOnes, kOnes}),
            (Words{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(Philox({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
            (Words{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(Philox, IsAConstantExpression) {
  static_assert(Philox({0, 0, 0, 0}, {0, 0})[0] == 0x6627e8d5);
}

TEST(Philox, ElementsTakeCountersAndWordsAsTheWireFormatSays) {
  const PhiloxStream stream =
      PhiloxStream::Of(0x0123456789abcdef, 0xfedcba9876543210, 0x700000005, 3, 9);
  for (uint32_t i : {0u, 15u, 16u, 17u, 63u, 64u, 100u, 4096u, 0xffffffffu}) {
    const uint32_t c0 = 16 * (i / 64) + i % 16;
    // seed XOR id is all ones. The upper half of the round is not used.
    EXPECT_EQ(stream.Word(i), Philox({c0, 5, 3, 9}, {0xffffffff, 0xffffffff})[i % 64 / 16]) << i;
  }
}

TEST(Philox, EveryPartOfWhereANumberIsUsedChangesIt) {
  const PhiloxStream base = PhiloxStream::Of(1, 2, 3, 4, 5);
  for (const PhiloxStream& other :
       {PhiloxStream::Of(9, 2, 3, 4, 5), PhiloxStream::Of(1, 9, 3, 4, 5),
        PhiloxStream::Of(1, 2 + (uint64_t{1} << 40), 3, 4, 5), PhiloxStream::Of(1, 2, 9, 4, 5),
        PhiloxStream::Of(1, 2, 3, kAnyWorker, 5), PhiloxStream::Of(1, 2, 3, 4, 9)}) {
    int same = 0;
    for (uint32_t i = 0; i < 1000; ++i) same += base.Word(i) == other.Word(i);
    EXPECT_EQ(same, 0);
  }
}

}  // namespace
}  // namespace slimps
