// SPDX-License-Identifier: Apache-2.0
// Decisions and tables over the wire: the receiver gets what the sender meant, in each direction.
#include "worker/plan/decision_proto.h"

#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <vector>

#include "compress/policy/table_rows.h"
#include "compress/policy/threshold_table.h"
#include "worker/tensor/push_counts.h"

namespace slimps {
namespace {

std::vector<CodecDecision> Decisions() {
  return {{},
          {.version = 3, .from_round = 9, .threshold_bytes = 0, .codec = "1bit"},
          {.threshold_bytes = std::nullopt, .codec_below = "fp16", .codec = "topk:ratio=0.1"},
          {.threshold_bytes = ~uint64_t{0}, .codec_below = "none", .codec = "2bit"}};
}

TEST(DecisionProto, APushDecisionComesBackAsItWas) {
  for (const CodecDecision& decision : Decisions()) {
    wire::CodecMap map;
    map.set_version(decision.version);
    map.set_from_round(decision.from_round);
    SetPushDecision(decision, &map);
    EXPECT_EQ(PushDecisionOf(map), decision) << decision.codec;
    EXPECT_EQ(map.has_threshold(), decision.threshold_bytes.has_value());
  }
}

TEST(DecisionProto, APullDecisionComesBackAsItWasButForWhatIsBelow) {
  for (CodecDecision decision : Decisions()) {
    wire::CodecMap map;
    map.set_version(decision.version);
    map.set_from_round(decision.from_round);
    SetPullDecision(decision, &map);
    decision.codec_below = "none";  // pulled without compression
    EXPECT_EQ(PullDecisionOf(map), decision) << decision.codec;
  }
}

TEST(DecisionProto, OneMapHoldsBothDirectionsApart) {
  const CodecDecision push{.threshold_bytes = 100, .codec_below = "fp16", .codec = "1bit"};
  const CodecDecision pull{.threshold_bytes = std::nullopt, .codec = "2bit"};
  wire::CodecMap map;
  SetPushDecision(push, &map);
  SetPullDecision(pull, &map);
  EXPECT_EQ(PushDecisionOf(map), push);
  EXPECT_EQ(PullDecisionOf(map), pull);
  // A decision without a threshold clears the previous threshold.
  SetPushDecision({.codec = "1bit"}, &map);
  EXPECT_EQ(PushDecisionOf(map).threshold_bytes, std::nullopt);
  EXPECT_EQ(map.threshold_bytes(), 0u);
}

TEST(DecisionProto, StepsOfAKeyComeInTheirOrder) {
  wire::CodecMap map;
  wire::CodecEntry* entry = map.add_entries();
  entry->set_key(17);
  entry->set_codec("none");
  entry->add_steps()->set_codec("topk");
  entry->add_steps()->set_codec("none");
  EXPECT_EQ(PushDecisionOf(map).entries.at(17), (std::vector<std::string>{"topk", "none"}));
}

TEST(DecisionProto, KeysThatDoNotFollowTheThresholdAreOfPushesAlone) {
  wire::CodecMap map;
  wire::CodecEntry* entry = map.add_entries();
  entry->set_key(17);
  entry->set_codec("topk");
  const CodecDecision push = PushDecisionOf(map);
  ASSERT_EQ(push.entries.size(), 1u);
  EXPECT_EQ(push.entries.at(17), std::vector<std::string>{"topk"});
  EXPECT_TRUE(PullDecisionOf(map).entries.empty());
}

TEST(DecisionProto, RowsSayTheirDirectionAndTimesInMilliseconds) {
  ThresholdTable table("1bit");
  table.AddSize(10);  // never measured
  table.AddRaw(4000, absl::Microseconds(2500));
  table.AddRaw(4000, absl::Microseconds(2500));
  table.AddCompressed(4000, absl::Milliseconds(2), absl::Milliseconds(1));
  wire::ThresholdReport report;
  AddRows(table, wire::PULL, report.mutable_rows());
  AddRows(ThresholdTable("1bit"), wire::PUSH, report.mutable_rows());
  ASSERT_EQ(report.rows_size(), 2) << "an empty table adds nothing";
  EXPECT_EQ(report.rows(0).bytes(), 10u);
  EXPECT_EQ(report.rows(0).raw_samples(), 0u);
  const wire::ThresholdRow& row = report.rows(1);
  EXPECT_EQ(row.bytes(), 4000u);
  EXPECT_EQ(row.direction(), wire::PULL);
  EXPECT_DOUBLE_EQ(row.t_c_ms(), 2.5);
  EXPECT_DOUBLE_EQ(row.t_cq_ms(), 2);
  EXPECT_DOUBLE_EQ(row.t_pq_ms(), 1);
  EXPECT_EQ(row.raw_samples(), 2u);
  EXPECT_EQ(row.compressed_samples(), 1u);
}

TEST(PushCounts, NormsAreOfCompressedPushesOnly) {
  PushCounts counts;
  EXPECT_EQ(counts.CompressionGain(), 1) << "nothing was lost";
  EXPECT_EQ(counts.CompressionError(), 0);
  EncodeStats stats;
  stats.elements_sent = 10;
  stats.payload_bytes = 40;
  stats.input_norm2 = 100;
  counts.Add(10, stats, /*compressed=*/false);
  EXPECT_EQ(counts.input_norm2, 0);
  EXPECT_EQ(counts.payload_bytes, 40u);
  stats.elements_sent = 2;
  stats.payload_bytes = 8;
  stats.input_norm2 = 4;
  stats.decoded_norm2 = 3;
  stats.error_norm2 = 1;
  counts.Add(10, stats, /*compressed=*/true);
  EXPECT_EQ(counts.elements, 20u);
  EXPECT_EQ(counts.elements_sent, 12u);
  EXPECT_EQ(counts.payload_bytes, 48u);
  EXPECT_EQ(counts.CompressionGain(), 0.75);
  EXPECT_EQ(counts.CompressionError(), 0.25);
}

}  // namespace
}  // namespace slimps
