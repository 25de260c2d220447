// SPDX-License-Identifier: Apache-2.0
#include "scheduler/decisions/compression_roll.h"

#include <gtest/gtest.h>

namespace slimps {
namespace {

TEST(CompressionRoll, WhoDiffersIsNamedOnceAllHaveSpoken) {
  CompressionRoll roll(3);
  roll.Note(2, "1bit");
  roll.Note(1, "none");
  EXPECT_EQ(roll.differences(), "");
  roll.Note(0, "1bit");
  EXPECT_EQ(roll.differences(), "worker 0, worker 2: 1bit; worker 1: none");
  roll.Note(1, "1bit");
  EXPECT_EQ(roll.differences(), "");
}

TEST(CompressionRoll, WhoSaysNothingIsNotCompared) {
  CompressionRoll roll(2);
  roll.Note(0, "1bit");
  roll.Note(1, "");
  EXPECT_EQ(roll.differences(), "");
}

TEST(CompressionRoll, TheTextIsBounded) {
  CompressionRoll roll(100);
  for (uint32_t worker = 0; worker < 100; ++worker) {
    roll.Note(worker, std::string(10'000, static_cast<char>('a' + worker % 20)));
  }
  EXPECT_NE(roll.differences(), "");
  EXPECT_LT(roll.differences().size(), 4000u);
}

}  // namespace
}  // namespace slimps
