// SPDX-License-Identifier: Apache-2.0
#include "compress/policy/measured_rounds.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace slimps {
namespace {

using ::testing::ElementsAre;

TEST(MeasuredRounds, TwoInARowOfEverySoMany) {
  const MeasuredRounds rounds(10, 23);
  EXPECT_EQ(rounds.KindOf(20), RoundKind::kNotMeasured);  // before the first measured pair
  EXPECT_EQ(rounds.KindOf(29), RoundKind::kNotMeasured);
  EXPECT_EQ(rounds.KindOf(30), RoundKind::kAsDecided);
  EXPECT_EQ(rounds.KindOf(31), RoundKind::kOtherWay);
  EXPECT_EQ(rounds.KindOf(32), RoundKind::kNotMeasured);
  EXPECT_EQ(rounds.PairOf(21), 0u);
  EXPECT_EQ(rounds.PairOf(29), 0u);
  EXPECT_EQ(rounds.PairOf(30), 3u);
  EXPECT_EQ(rounds.PairOf(39), 3u);
  EXPECT_EQ(rounds.ReportRoundOf(3), 33u);
}

TEST(MeasuredRounds, AnAnswerHoldsBeforeTheNextPair) {
  const uint64_t every = MeasuredRounds::kShortestEvery;
  const MeasuredRounds rounds(every, 1);
  const uint64_t ready = rounds.ReportRoundOf(1) + 1;
  EXPECT_LE(ready + MeasuredRounds::kAnnounceRounds, 2 * every);
}

TEST(MeasuredRounds, ZeroIsNever) {
  const MeasuredRounds rounds(0, 1);
  EXPECT_FALSE(rounds.on());
  for (uint64_t round = 0; round < 100; ++round) {
    EXPECT_EQ(rounds.KindOf(round), RoundKind::kNotMeasured);
    EXPECT_EQ(rounds.PairOf(round), 0u);
  }
}

TEST(ChooseSizes, BothSidesOfTheThresholdTheEndsAndOneMore) {
  std::map<uint64_t, uint64_t> tensors;
  for (uint64_t bytes = 256; bytes <= 256 << 10; bytes *= 2) tensors[bytes] = 100;
  // There are sizes 0 to 10. Pair 7 adds size 7.
  EXPECT_THAT(ChooseSizes(tensors, 4096, 7), ElementsAre(256, 2048, 4096, 256 << 7, 256 << 10));
  EXPECT_THAT(ChooseSizes(tensors, 4000, 11), ElementsAre(256, 2048, 4096, 256 << 10));
  EXPECT_THAT(ChooseSizes(tensors, std::nullopt, 11), ElementsAre(256, 256 << 10));
  EXPECT_THAT(ChooseSizes(tensors, 0, 1), ElementsAre(256, 512, 256 << 10));
  std::set<uint64_t> all;
  for (uint64_t pair = 1; pair <= tensors.size(); ++pair)
    all.merge(ChooseSizes(tensors, 4096, pair));
  EXPECT_EQ(all.size(), tensors.size());  // each size has its turn
  EXPECT_THAT(ChooseSizes(tensors, std::nullopt, 0),
              ElementsAre(256, 1024, 4096, 16384, 65536, 256 << 10))
      << "the profile: equal ratios";
}

TEST(ChooseSizes, NoTensorThatWouldHoldTrainingUp) {
  // VGG-16's fc6 has three quarters of all its bytes.
  const std::map<uint64_t, uint64_t> tensors = {
      {256, 5}, {2 << 20, 4}, {9 << 20, 6}, {64 << 20, 1}, {411 << 20, 1}};
  for (uint64_t pair = 0; pair < 10; ++pair) {
    EXPECT_LE(*ChooseSizes(tensors, 64 << 20, pair).rbegin(), 9u << 20);
  }
  EXPECT_THAT(ChooseSizes({{4096, 1}}, 0, 5), ElementsAre(4096));  // the smallest is always chosen
  // If the small sizes tell nothing about the others, the first size that does is added, or the
  // largest if none does.
  const std::map<uint64_t, uint64_t> mlp = {{4096, 8}, {16384, 8}, {4 << 20, 4}, {8 << 20, 4}};
  for (uint64_t pair = 0; pair < 10; ++pair) {
    EXPECT_EQ(*ChooseSizes(mlp, 4096, pair).rbegin(), 4u << 20);
  }
  EXPECT_THAT(ChooseSizes({{1000, 1}, {2000, 1}, {3000, 1}}, 0, 0), ElementsAre(1000, 3000));
  EXPECT_TRUE(ChooseSizes({}, 0, 5).empty());
}

}  // namespace
}  // namespace slimps
