// SPDX-License-Identifier: Apache-2.0
// The parts of the sparse codecs, one by one.
#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "compress/codec/options.h"
#include "compress/codec/sparse/select/candidate_list.h"
#include "compress/codec/sparse/select/selection_floor.h"
#include "compress/codec/sparse/sparse_options.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/compress/test_data.h"

namespace slimps {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::SizeIs;

constexpr float kSmallest = std::numeric_limits<float>::denorm_min();

TEST(CandidateList, EntriesLieTogetherInTheOrderOfAppending) {
  EncodeWorkspace workspace;
  CandidateList list;
  list.Take(workspace, 5);
  EXPECT_TRUE(list.complete());
  EXPECT_THAT(list.indices(), SizeIs(0));
  const uint32_t index[] = {7, 8, 9};
  const float value[] = {-1, 2, 3};
  EXPECT_EQ(list.Append(index, value, 3), 0u);
  EXPECT_EQ(list.Append(index, value, 0), 3u);
  EXPECT_EQ(list.Append(index + 1, value + 1, 2), 3u);
  EXPECT_EQ(list.used(), 5u);
  EXPECT_TRUE(list.complete()) << "it is just full";
  EXPECT_THAT(list.indices(), ElementsAre(7, 8, 9, 8, 9));
  EXPECT_THAT(list.values(), ElementsAre(-1, 2, 3, 2, 3));
}

TEST(CandidateList, WhatFindsNoRoomIsCountedAndNotWritten) {
  EncodeWorkspace workspace;
  CandidateList list;
  list.Take(workspace, 4);
  const std::span<uint32_t> behind = workspace.Take<uint32_t>(16);
  std::ranges::fill(behind, 99u);
  const uint32_t index[] = {1, 2, 3};
  const float value[] = {1, 2, 3};
  list.Append(index, value, 3);
  EXPECT_EQ(list.Append(index, value, 3), 3u);
  EXPECT_FALSE(list.complete());
  EXPECT_EQ(list.used(), 6u);
  EXPECT_EQ(std::ranges::count(behind, 99u), 16);
  list.Clear();
  EXPECT_TRUE(list.complete());
  EXPECT_EQ(list.Append(index, value, 1), 0u);
  EXPECT_THAT(list.values(), ElementsAre(1));
  list.Take(workspace, 100);
  EXPECT_EQ(list.used(), 0u);
  for (int i = 0; i < 33; ++i) list.Append(index, value, 3);
  EXPECT_TRUE(list.complete());
}

TEST(SentBlock, StatisticsAreSumsOverBlocks) {
  struct Block : SentBlock {
    int more = 0;
  };
  std::vector<Block> blocks(2);
  blocks[0].sent = 3;
  blocks[0].left2 = 1;
  blocks[0].sums = {.sent2 = 10, .decoded2 = 20, .error2 = 0.5f};
  blocks[1].sent = 4;
  blocks[1].sums = {.sent2 = 100, .decoded2 = 200, .error2 = 2};
  const EncodeStats stats = StatsOf<Block>(blocks, 77);
  EXPECT_EQ(stats.payload_bytes, 77u);
  EXPECT_EQ(stats.elements_sent, 7u);
  EXPECT_EQ(stats.input_norm2, 111);
  EXPECT_EQ(stats.decoded_norm2, 220);
  EXPECT_EQ(stats.error_norm2, 3.5);
}

TEST(SentBlock, WhatIsSentLeavesItsErrorInTheResidual) {
  constexpr size_t kElements = kBlockElements + 3;  // the second block is short
  std::vector<float> gradient(kElements), residual(kElements, 9);
  const EncodeInput input = {.gradient = gradient, .residual = residual};
  std::vector<std::byte> payload(
      SparseBuilder::MaxPayloadBytes({.values = SparseValues::kOne, .elements = kElements}, 2));
  EncodeWorkspace workspace;
  SparseBuilder builder(BestKernels(), {.values = SparseValues::kOne, .elements = kElements},
                        payload, workspace);
  const std::vector<uint32_t> index = {0, 2};
  const std::vector<float> value = {1, 4};
  builder.SetBlock(0, {});
  builder.SetBlock(1, index);
  builder.Plan(2, 0);
  SentBlock first, second;
  WriteSent(BestKernels(), input, 0, {}, {}, builder, first);
  WriteSent(BestKernels(), input, 1, index, value, builder, second);
  EXPECT_EQ(first.sums.sent2, 0);
  EXPECT_EQ(second.sums.sent2, 17);
  EXPECT_EQ(second.sums.decoded2, 8);
  EXPECT_EQ(second.sums.error2, 5);
  EXPECT_EQ(residual[kBlockElements], -1);
  EXPECT_EQ(residual[kBlockElements + 1], 9) << "it was not sent";
  EXPECT_EQ(residual[kBlockElements + 2], 2);
}

TEST(InputOf, IsTheScaledGradientAndTheResidual) {
  std::vector<float> gradient = {3, 5}, residual = {0.5f, -1};
  EXPECT_EQ(InputOf({.gradient = gradient, .grad_scale = 2}, 1), 10);
  EXPECT_EQ(InputOf({.gradient = gradient, .residual = residual, .grad_scale = 2}, 1), 9);
  EXPECT_EQ(InputOf({.gradient = gradient, .residual = residual}, 0), 3.5f);
}

TEST(SelectionFloor, AGuessLetsTheRankThrough) {
  constexpr size_t kElements = 400'000;
  std::vector<float> all = RandomFloats(kElements, 3);
  for (float& x : all) x = std::fabs(x);
  const SamplePlan plan(kElements);
  for (const size_t rank :
       {size_t{1}, size_t{400}, size_t{4000}, size_t{40'000}, size_t{200'000}}) {
    std::vector<float> keys(plan.Size());
    for (size_t i = 0; i < keys.size(); ++i) keys[i] = all[plan.Element(i)];
    const float floor = GuessFloor(keys, rank, kElements);
    const auto over =
        static_cast<size_t>(std::ranges::count_if(all, [&](float x) { return x >= floor; }));
    EXPECT_GE(over, rank);
    EXPECT_LE(over, rank + rank / 2 + 2000) << "of " << rank << ": a guess that lists all is none";
  }
}

TEST(SelectionFloor, WithoutASampleOrForAllOfItTheFloorIsTheSmallest) {
  EXPECT_EQ(GuessFloor({}, 1, 100), kSmallest);
  std::vector<float> keys(100, 5.0f);
  EXPECT_EQ(GuessFloor(keys, 1000, 1000), kSmallest);
  EXPECT_EQ(GuessFloor(keys, 10, 1000), 5);
  std::vector<float> zeros(1000, 0.0f);
  EXPECT_EQ(GuessFloor(zeros, 10, 1000), kSmallest) << "a floor is over 0";
}

TEST(SparseOptions, CountsAreAtLeastOneAndNeverMoreThanThereAre) {
  EXPECT_EQ((SentCount{.ratio = 0.01}.Of(1000)), 10u);
  EXPECT_EQ((SentCount{.ratio = 0.01}.Of(99)), 1u);
  EXPECT_EQ((SentCount{.ratio = 0.01}.Of(0)), 0u);
  EXPECT_EQ((SentCount{.ratio = 1}.Of(7)), 7u);
  EXPECT_EQ((SentCount{.count = 5}.Of(1000)), 5u);
  EXPECT_EQ((SentCount{.count = 5}.Of(3)), 3u);
}

CodecSpec Spec(std::map<std::string, std::string> options) {
  return {.name = "topk", .options = std::move(options)};
}

TEST(SparseOptions, RatioAndKSayTheSameThingOnce) {
  EXPECT_EQ(SentCountOption(Spec({}))->ratio, 0.01);
  EXPECT_EQ(SentCountOption(Spec({{"ratio", "0.5"}}))->ratio, 0.5);
  EXPECT_EQ(SentCountOption(Spec({{"k", "0.25"}}))->ratio, 0.25);
  EXPECT_EQ(SentCountOption(Spec({{"k", "12"}}))->count, 12u);
  EXPECT_EQ(SentCountOption(Spec({{"k", "4294967295"}}))->count, 4294967295u);
  EXPECT_THAT(SentCountOption(Spec({{"k", "1"}, {"ratio", "1"}})).status().ToString(),
              HasSubstr("options ratio and k say the same thing"));
  for (const char* bad : {"0", "-1", "1.5", "4294967296", "nan", "inf", "", "1x"}) {
    EXPECT_THAT(SentCountOption(Spec({{"k", bad}})).status().ToString(),
                AllOf(HasSubstr("codec topk, option k"), HasSubstr(std::string("'") + bad + "'")));
  }
  for (const char* bad : {"0", "-0.1", "1.0001", "nan", "x"}) {
    EXPECT_THAT(SentCountOption(Spec({{"ratio", bad}})).status().ToString(),
                HasSubstr("expected a number over 0 and at most 1"));
  }
  EXPECT_LT(SentCountOption(Spec({{"ratio", std::string(9999, '9')}})).status().message().size(),
            300u);
}

TEST(SparseOptions, ValuesCarryWhatTheirFormatRoundsToFiniteNumbers) {
  EXPECT_EQ(*ValueOption(Spec({})), SparseValues::kF32);
  EXPECT_EQ(*ValueOption(Spec({{"value", "fp16"}})), SparseValues::kF16);
  EXPECT_FALSE(ValueOption(Spec({{"value", "fp8"}})).ok());
  const auto through_f16 = [](float x) {
    std::byte wire[64];
    float back[32];
    BestKernels().raw.encode_f16(&x, nullptr, 1, 1, wire);
    BestKernels().raw.decode_f16(wire, 1, back);
    return back[0];
  };
  const float largest = LargestSparseValue(SparseValues::kF16);
  EXPECT_EQ(through_f16(largest), 65504);
  EXPECT_TRUE(std::isinf(through_f16(std::nextafter(largest, 1e9f))));
  EXPECT_EQ(LargestSparseValue(SparseValues::kSignTwo), std::numeric_limits<float>::max());
}

TEST(Options, NumbersMeetTheirRanges) {
  EXPECT_EQ(*UintOption(Spec({}), "n", 1, 5, 3), 3u);
  EXPECT_EQ(*UintOption(Spec({{"n", "1"}}), "n", 1, 5, 3), 1u);
  EXPECT_EQ(*UintOption(Spec({{"n", "5"}}), "n", 1, 5, 3), 5u);
  EXPECT_EQ(*UintOption(Spec({{"n", "18446744073709551615"}}), "n", 0, ~uint64_t{0}, 0),
            ~uint64_t{0});
  for (const char* bad : {"0", "6", "-1", "1.0", "", " 1", "18446744073709551616"}) {
    EXPECT_THAT(UintOption(Spec({{"n", bad}}), "n", 1, 5, 3).status().ToString(),
                AllOf(HasSubstr("topk"), HasSubstr("n"), HasSubstr("5")))
        << bad;
  }
}

TEST(Options, FloatsAreFiniteOverZeroOrFactors) {
  const auto parse = [](const char* text, FloatRange range) {
    return FloatOption(Spec({{"f", text}}), "f", range, 7);
  };
  EXPECT_EQ(*FloatOption(Spec({}), "f", FloatRange::kFactor, 7), 7) << "the fallback is trusted";
  EXPECT_EQ(*parse("-1.5", FloatRange::kFinite), -1.5f);
  EXPECT_EQ(*parse("1e-3", FloatRange::kPositive), 1e-3f);
  EXPECT_EQ(*parse("0", FloatRange::kFactor), 0);
  for (const char* bad : {"nan", "inf", "1e39", "", "0x", "1,5"}) {
    EXPECT_FALSE(parse(bad, FloatRange::kFinite).ok()) << bad;
  }
  EXPECT_FALSE(parse("0", FloatRange::kPositive).ok());
  EXPECT_FALSE(parse("-1", FloatRange::kPositive).ok());
  EXPECT_FALSE(parse("1", FloatRange::kFactor).ok());
  EXPECT_FALSE(parse("-0.1", FloatRange::kFactor).ok());
}

}  // namespace
}  // namespace slimps
