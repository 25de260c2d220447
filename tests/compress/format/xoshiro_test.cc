// SPDX-License-Identifier: Apache-2.0
#include "tests/compress/format/xoshiro.h"

#include <array>
#include <bit>
#include <cmath>

#include "gtest/gtest.h"

namespace slimps {
namespace {

constexpr PhiloxStream kStream = PhiloxStream::Of(7, 0, 5, 3, 9);

// The test vector that published implementations share (rand_xoshiro's, among others).
TEST(Xoshiro, GivesThePublishedKnownAnswers) {
  Xoshiro128Plus generator({1, 2, 3, 4});
  for (const uint32_t want : {5u, 12295u, 25178119u, 27286542u, 39879690u, 1140358681u, 3276312097u,
                              4110231701u, 399823256u, 2144435200u}) {
    EXPECT_EQ(generator(), want);
  }
}

TEST(Xoshiro, IsAConstantExpression) {
  static_assert(RoundingShort(kStream, 1, 0) < 65536);
  static_assert(RoundingShort(kStream, 1, 0) != RoundingShort(kStream, 2, 0));
}

TEST(Xoshiro, ABlocksGeneratorsStartWithPhilox) {
  for (const uint32_t block : {0u, 1u, 1000u}) {
    for (const uint32_t lane : {0u, 1u, 15u}) {
      const auto start = Philox({16 * block + lane, 5, 3, 9}, {7, 0});
      Xoshiro128Plus wanted(start), got(kStream, block, lane);
      for (int i = 0; i < 5; ++i) EXPECT_EQ(got(), wanted());
    }
  }
}

TEST(Xoshiro, ShortsAreHalvesOfStepsSixteenLanesAtATime) {
  for (const uint32_t i : {0u, 15u, 16u, 31u, 32u, 100u, 4095u}) {
    Xoshiro128Plus generator(kStream, 4, i % 16);
    uint32_t word = 0;
    for (uint32_t step = 0; step <= i / 32; ++step) word = generator();
    EXPECT_EQ(RoundingShort(kStream, 4, i), i % 32 < 16 ? word % 65536 : word / 65536) << i;
  }
}

// Takes 16 bits of the numbers of 128 blocks. Each bit is set half the time, and neighbouring
// elements agree in half their bits. Both hold within five standard deviations.
TEST(Xoshiro, BitsAreBalancedAndNeighboursAgreeHalfTheTime) {
  constexpr uint32_t kBlocks = 128, kElements = 256;
  std::array<int, 16> ones = {};
  int agree = 0;
  for (uint32_t block = 0; block < kBlocks; ++block) {
    uint32_t before = RoundingShort(kStream, block, 0);
    for (uint32_t i = 1; i < kElements; ++i) {
      const uint32_t now = RoundingShort(kStream, block, i);
      for (size_t bit = 0; bit < 16; ++bit) ones[bit] += static_cast<int>(now >> bit & 1);
      agree += 16 - std::popcount(before ^ now);
      before = now;
    }
  }
  constexpr double kDraws = kBlocks * (kElements - 1);
  for (const int count : ones) EXPECT_NEAR(count, kDraws / 2, 5 * std::sqrt(kDraws) / 2);
  EXPECT_NEAR(agree, 8 * kDraws, 5 * std::sqrt(16 * kDraws) / 2);
}

}  // namespace
}  // namespace slimps
