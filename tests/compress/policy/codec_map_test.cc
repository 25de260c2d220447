// SPDX-License-Identifier: Apache-2.0
#include "compress/policy/codec_map.h"

#include "gtest/gtest.h"

namespace slimps {
namespace {

CodecDecision Threshold(uint64_t version, uint64_t from_round, std::optional<uint64_t> bytes) {
  return {.version = version, .from_round = from_round, .threshold_bytes = bytes, .codec = "1bit"};
}

TEST(CodecMap, EverythingIsRawBeforeTheFirstDecision) {
  const CodecMap codecs;
  EXPECT_EQ(codecs.CodecFor(1, uint64_t{1} << 40, 1), "none");
  EXPECT_EQ(codecs.newest().version, 0u);
}

TEST(CodecMap, AtOrAboveTheThresholdIsCompressed) {
  CodecMap codecs;
  ASSERT_TRUE(codecs.Apply(Threshold(1, 5, 1000)).ok());
  EXPECT_EQ(codecs.CodecFor(1, 999, 5), "none");
  EXPECT_EQ(codecs.CodecFor(1, 1000, 5), "1bit");
  EXPECT_EQ(codecs.CodecFor(1, 1001, 500), "1bit");
}

TEST(CodecMap, ThresholdZeroCompressesEverythingAndNoneNothing) {
  CodecMap codecs;
  ASSERT_TRUE(codecs.Apply(Threshold(1, 1, 0)).ok());
  ASSERT_TRUE(codecs.Apply(Threshold(2, 10, std::nullopt)).ok());
  EXPECT_EQ(codecs.CodecFor(1, 4, 9), "1bit");
  EXPECT_EQ(codecs.CodecFor(1, uint64_t{1} << 40, 10), "none");
}

TEST(CodecMap, ListedKeysDoNotFollowTheThreshold) {
  CodecDecision decision = Threshold(1, 1, 1000);
  decision.entries[7] = {"2bit:threshold=0.1"};
  decision.entries[8] = {"none"};
  decision.codec_below = "fp16";
  CodecMap codecs;
  ASSERT_TRUE(codecs.Apply(decision).ok());
  EXPECT_EQ(codecs.CodecFor(7, 4, 1), "2bit:threshold=0.1");
  EXPECT_EQ(codecs.CodecFor(8, 4000, 1), "none");
  EXPECT_EQ(codecs.CodecFor(9, 4, 1), "fp16");
  EXPECT_EQ(codecs.CodecFor(9, 4000, 1), "1bit");
}

TEST(CodecMap, AKeyWithSeveralCodecsTakesTheOneOfTheStep) {
  CodecDecision decision;
  decision.entries[7] = {"topk:ratio=0.01", "topk", "none"};
  decision.entries[8] = {"topk", "none"};
  EXPECT_EQ(decision.CodecFor(7, 4), "topk:ratio=0.01");
  EXPECT_EQ(decision.CodecFor(7, 4, 1), "topk");
  EXPECT_EQ(decision.CodecFor(8, 4, 1), "none");
  EXPECT_EQ(decision.CodecFor(8, 4, 2), "none") << "the last, as it has fewer";
}

TEST(CodecMap, RoundsBeforeFromRoundKeepTheEarlierDecision) {
  CodecMap codecs;
  ASSERT_TRUE(codecs.Apply(Threshold(1, 5, 1000)).ok());
  ASSERT_TRUE(codecs.Apply(Threshold(2, 9, 4000)).ok());
  EXPECT_EQ(codecs.CodecFor(1, 2000, 4), "none");
  EXPECT_EQ(codecs.CodecFor(1, 2000, 8), "1bit");
  EXPECT_EQ(codecs.CodecFor(1, 2000, 9), "none");
  EXPECT_EQ(codecs.DecisionAt(8).version, 1u);
}

TEST(CodecMap, TheSameVersionAgainIsOkOnlyUnchanged) {
  CodecMap codecs;
  ASSERT_TRUE(codecs.Apply(Threshold(3, 5, 1000)).ok());
  EXPECT_TRUE(codecs.Apply(Threshold(3, 5, 1000)).ok());
  EXPECT_EQ(codecs.Apply(Threshold(3, 5, 2000)).code(), absl::StatusCode::kAlreadyExists);
  EXPECT_EQ(codecs.Apply(Threshold(2, 6, 2000)).code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(codecs.Apply(Threshold(4, 4, 2000)).code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(codecs.CodecFor(1, 1500, 6), "1bit");
}

TEST(CodecMap, ForgettingKeepsTheDecisionStillInForce) {
  CodecMap codecs;
  ASSERT_TRUE(codecs.Apply(Threshold(1, 5, 1000)).ok());
  ASSERT_TRUE(codecs.Apply(Threshold(2, 9, 4000)).ok());
  codecs.ForgetBefore(8);
  EXPECT_EQ(codecs.DecisionAt(8).version, 1u);
  EXPECT_EQ(codecs.DecisionAt(1).version, 1u);  // it is forgotten: the oldest kept one
  codecs.ForgetBefore(100);
  EXPECT_EQ(codecs.DecisionAt(1).version, 2u);
}

}  // namespace
}  // namespace slimps
