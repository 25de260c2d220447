// SPDX-License-Identifier: Apache-2.0
// What a run leaves behind: progress lines, the summary, the weights file.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <nlohmann/json.hpp>
#include <sstream>

#include "tests/worker/trainer/fake_model.h"
#include "worker/trainer/progress.h"
#include "worker/trainer/summary.h"
#include "worker/trainer/weights_file.h"

namespace slimps {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

Summary SomeSummary() {
  Summary summary;
  summary.model = "mlp";
  summary.dataset = "digits";
  summary.threshold = "auto";
  summary.seed = 7;
  summary.workers = 2;
  summary.servers = 3;
  summary.test = {.loss = 20, .correct = 97, .labels = 100};
  summary.training.seconds = absl::Seconds(4);
  summary.training.samples = 1000;
  summary.training.bytes_pushed = 100;
  summary.training.bytes_pulled = 400;
  summary.training.pushed = {.elements = 750,
                             .elements_sent = 75,
                             .payload_bytes = 90,
                             .input_norm2 = 8,
                             .decoded_norm2 = 6,
                             .error_norm2 = 1};
  summary.training.tensors = {
      {.key = "conv.weight",
       .layer = wire::CONVOLUTION,
       .elements = 50,
       .pushed = {.elements = 500, .elements_sent = 5, .payload_bytes = 60}},
      {.key = "bias", .elements = 25, .pushed = {.elements = 250, .elements_sent = 250}}};
  summary.training.stages.encode = absl::Milliseconds(1500);
  return summary;
}

// SlimGC's worked example: BestCT is 2.2 MB.
wire::CodecMap SomeDecision() {
  wire::CodecMap decision;
  decision.set_version(1);
  decision.set_codec("1bit");
  decision.set_has_threshold(true);
  decision.set_threshold_bytes(2200000);
  const double rows[][4] = {{1e6, 28.5, 24.3, 6.3}, {2.2e6, 40.2, 28.3, 6.8}};
  for (const auto& [bytes, t_c, t_cq, t_pq] : rows) {
    wire::ThresholdRow* row = decision.add_table();
    row->set_bytes(static_cast<uint64_t>(bytes));
    row->set_t_c_ms(t_c);
    row->set_t_cq_ms(t_cq);
    row->set_t_pq_ms(t_pq);
    row->set_raw_samples(9);
    row->set_compressed_samples(9);
  }
  return decision;
}

TEST(Summary, HoldsTheFiguresOfTheRun) {
  const auto json = nlohmann::json::parse(BuildSummaryJson(SomeSummary()));
  EXPECT_EQ(json["model"], "mlp");
  EXPECT_EQ(json["seed"], 7);
  EXPECT_EQ(json["workers"], 2);
  EXPECT_EQ(json["servers"], 3);
  EXPECT_DOUBLE_EQ(json["test_accuracy"], 0.97);
  EXPECT_DOUBLE_EQ(json["test_loss"], 0.2);
  EXPECT_DOUBLE_EQ(json["seconds"], 4);
  EXPECT_DOUBLE_EQ(json["samples_per_second"], 250);
  EXPECT_EQ(json["bytes_pushed"], 100);
  EXPECT_EQ(json["bytes_pulled"], 400);
  EXPECT_DOUBLE_EQ(json["compression_ratio"], 30);
  EXPECT_EQ(json["elements_pushed"], 750);
  EXPECT_EQ(json["elements_sent"], 75);
  EXPECT_DOUBLE_EQ(json["compression_gain"], 0.75);
  EXPECT_DOUBLE_EQ(json["compression_error"], 0.125);
  EXPECT_EQ(json["payload_bytes"], 90);
  EXPECT_DOUBLE_EQ(json["stage_seconds"]["encode"], 1.5);
  for (const char* stage : {"copy", "send", "wait", "decode", "local_update", "overlap"}) {
    EXPECT_TRUE(json["stage_seconds"].contains(stage)) << stage;
  }
}

TEST(Summary, SaysOfEachTensorWhatItsPushesCarried) {
  const auto json = nlohmann::json::parse(BuildSummaryJson(SomeSummary()));
  ASSERT_EQ(json["tensors"].size(), 2u);
  const auto& conv = json["tensors"][0];
  EXPECT_EQ(conv["key"], "conv.weight");
  EXPECT_EQ(conv["layer"], "convolution");
  EXPECT_EQ(conv["elements"], 50);
  EXPECT_EQ(conv["elements_pushed"], 500);
  EXPECT_EQ(conv["elements_sent"], 5);
  EXPECT_EQ(conv["payload_bytes"], 60);
  EXPECT_DOUBLE_EQ(conv["compression_gain"], 1);
  EXPECT_EQ(json["tensors"][1]["layer"], "other");
}

TEST(Summary, SaysWhereTheRunStoodAfterEachEpoch) {
  Summary summary = SomeSummary();
  summary.training.epochs = {
      {.steps = 5, .seconds = absl::Seconds(2), .bytes_pushed = 50, .bytes_pulled = 200},
      {.steps = 10, .seconds = absl::Seconds(4), .bytes_pushed = 100, .bytes_pulled = 400}};
  summary.training.epochs.back().test = summary.test;
  const auto json = nlohmann::json::parse(BuildSummaryJson(summary))["after_epoch"];
  ASSERT_EQ(json.size(), 2u);
  EXPECT_EQ(json[0]["steps"], 5);
  EXPECT_DOUBLE_EQ(json[0]["seconds"], 2);
  EXPECT_EQ(json[0]["bytes_pushed"], 50);
  EXPECT_EQ(json[0]["bytes_pulled"], 200);
  EXPECT_TRUE(json[0]["test_accuracy"].is_null() && json[0]["test_loss"].is_null());
  EXPECT_DOUBLE_EQ(json[1]["test_accuracy"], 0.97);
  EXPECT_DOUBLE_EQ(json[1]["test_loss"], 0.2);
}

TEST(Summary, WithoutADecisionTheTableIsEmpty) {
  const auto json = nlohmann::json::parse(BuildSummaryJson(SomeSummary()));
  EXPECT_TRUE(json["threshold_bytes"].is_null());
  EXPECT_TRUE(json["threshold_table"].empty());
  EXPECT_EQ(json["threshold_explanation"], "");
}

TEST(Summary, HoldsTheThresholdTableAndItsExplanation) {
  Summary summary = SomeSummary();
  summary.decision = SomeDecision();
  const auto json = nlohmann::json::parse(BuildSummaryJson(summary));
  EXPECT_EQ(json["threshold_bytes"], 2200000);
  ASSERT_EQ(json["threshold_table"].size(), 2u);
  const auto& row = json["threshold_table"][1];
  EXPECT_EQ(row["bytes"], 2200000);
  EXPECT_DOUBLE_EQ(row["t_c_ms"], 40.2);
  EXPECT_NEAR(row["t_q_ms"].get<double>(), 35.1, 1e-9);
  EXPECT_NEAR(row["gain"].get<double>(), 1.15, 0.005);
  EXPECT_NEAR(row["saves_ms"].get<double>(), 5.1, 1e-9);
  EXPECT_DOUBLE_EQ(row["measured"]["t_c_ms"], 40.2);
  EXPECT_NEAR(json["estimated_step_ms"]["saved"].get<double>(), 5.1, 1e-9);
  EXPECT_THAT(json["threshold_explanation"].get<std::string>(), HasSubstr("2200000"));
}

TEST(Summary, HoldsWhatAPolicyHasDecidedWithItsReasons) {
  Summary summary = SomeSummary();
  summary.policy = "gravac:codec=topk";
  wire::CodecMap& first = summary.policy_decisions.emplace_back();
  first.set_from_round(1);
  first.set_reason("gravac: the first window");
  wire::CodecEntry* entry = first.add_entries();
  entry->set_key(Key("conv.weight").id());
  entry->set_codec("none");
  entry->set_reason("as all tensors");
  entry->add_steps()->set_codec("topk:ratio=0.1");
  entry->add_steps()->set_codec("none");
  summary.policy_decisions.push_back(first);
  summary.policy_decisions[1].set_from_round(504);
  summary.policy_decisions[1].mutable_entries(0)->clear_steps();
  const auto json = nlohmann::json::parse(BuildSummaryJson(summary));
  EXPECT_EQ(json["policy"], "gravac:codec=topk");
  const auto& decisions = json["policy_decisions"];
  ASSERT_EQ(decisions.size(), 2u);
  EXPECT_EQ(decisions[0]["from_round"], 1);
  EXPECT_EQ(decisions[0]["reason"], "gravac: the first window");
  EXPECT_EQ(decisions[0]["codecs"], (nlohmann::json{{"conv.weight", {"topk:ratio=0.1", "none"}}}));
  EXPECT_EQ(decisions[0]["reasons"], (nlohmann::json{{"conv.weight", "as all tensors"}}));
  EXPECT_EQ(decisions[1]["from_round"], 504);
  EXPECT_EQ(decisions[1]["codecs"], (nlohmann::json{{"conv.weight", "none"}}));
}

TEST(Summary, TheMeasuredTableCanBeTakenBack) {
  const auto table = TableOf(SomeDecision());
  ASSERT_TRUE(table.ok()) << table.status();
  EXPECT_EQ(table->codec(), "1bit");
  EXPECT_EQ(table->BestCompressionThreshold(), 2200000u);
  EXPECT_TRUE(TableOf(std::nullopt)->empty());
}

TEST(Summary, ARowThatNoTableCanHoldIsExplainedAsSuch) {
  wire::CodecMap decision = SomeDecision();
  *decision.add_table() = decision.table(0);  // the same size twice
  EXPECT_EQ(TableOf(decision).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_FALSE(ExplainDecision(decision).empty());
}

TEST(Summary, SaysWhetherTheLinkWasEmulated) {
  Summary summary = SomeSummary();
  EXPECT_FALSE(nlohmann::json::parse(BuildSummaryJson(summary))["link_emulated"]);
  summary.emulated_link_bytes_per_second = 12.5e6;
  EXPECT_TRUE(nlohmann::json::parse(BuildSummaryJson(summary))["link_emulated"]);
  summary.emulated_link_bytes_per_second = 0;
  summary.emulated_latency_ms = 50;
  EXPECT_TRUE(nlohmann::json::parse(BuildSummaryJson(summary))["link_emulated"]);
}

TEST(Summary, WhereNothingWasCompressedNothingIsLost) {
  Summary summary = SomeSummary();
  summary.training.pushed.input_norm2 = summary.training.pushed.decoded_norm2 =
      summary.training.pushed.error_norm2 = 0;
  const auto json = nlohmann::json::parse(BuildSummaryJson(summary));
  EXPECT_EQ(json["compression_gain"], 1);
  EXPECT_EQ(json["compression_error"], 0);
  summary.training.pushed.input_norm2 = summary.training.pushed.decoded_norm2 =
      std::numeric_limits<double>::infinity();
  EXPECT_TRUE(nlohmann::json::parse(BuildSummaryJson(summary))["compression_gain"].is_null());
}

TEST(Summary, ALossThatIsNoNumberIsNull) {
  Summary summary = SomeSummary();
  summary.test.loss = std::numeric_limits<double>::quiet_NaN();
  EXPECT_TRUE(nlohmann::json::parse(BuildSummaryJson(summary))["test_loss"].is_null());
}

TEST(WeightsFile, HoldsNamesShapesAndBits) {
  const FakeModel model;
  const std::string bytes = BuildWeights(model.parameters());
  // Magic, count; for each parameter its name and extents; then the values.
  ASSERT_EQ(bytes.size(), 8 + 4 + (4 + 1 + 4 + 2 * 8 + 16) + (4 + 1 + 4 + 8 + 8));
  EXPECT_THAT(bytes, StartsWith("SLIMPSW1"));
  EXPECT_EQ(bytes[8], 2);
  EXPECT_EQ(bytes[12], 1);
  EXPECT_EQ(bytes[16], 'a');
  float first = 0;
  std::memcpy(&first, &bytes[17 + 4 + 16], sizeof(first));
  EXPECT_EQ(first, 1.0f);
}

StepProgress Step(size_t step, size_t steps) {
  return {.epoch = 1,
          .epochs = 3,
          .step = step,
          .steps = steps,
          .loss = {.loss = 8, .correct = 0, .labels = 16},
          .samples = 16,
          .waited = absl::Milliseconds(410)};
}

StoreTotals Totals() {
  StoreTotals totals;
  totals.bytes_pushed = 1'250'000;
  totals.pushed.elements = 10'000'000;
  return totals;
}

TEST(Progress, PlainLinesComeEverySoManyStepsAndAtTheEnd) {
  FakeClock clock;
  std::ostringstream out;
  Progress progress({.log_every = 2}, &clock, &out);
  for (size_t step = 1; step <= 5; ++step) {
    clock.Advance(absl::Milliseconds(100));
    progress.Report(Step(step, 5), Totals());
  }
  const std::string text = out.str();
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 3);
  EXPECT_THAT(text,
              StartsWith("epoch 1/3 step 2/5 loss 0.5000 160 samples/s pushed 1.2 MB (ratio 32.0) "
                         "waited 0.41 s\n"));
  EXPECT_THAT(text, HasSubstr("step 5/5"));
  EXPECT_THAT(text, Not(HasSubstr("\r")));
}

TEST(Progress, OnATerminalOneLineIsOverwrittenNotTooOften) {
  FakeClock clock;
  std::ostringstream out;
  Progress progress({.style = ProgressOptions::Style::kTerminal}, &clock, &out);
  for (size_t step = 1; step <= 10; ++step) {
    clock.Advance(absl::Milliseconds(25));
    progress.Report(Step(step, 10), Totals());
  }
  const std::string text = out.str();
  EXPECT_EQ(std::count(text.begin(), text.end(), '\r'), 4);  // steps 1, 5, 9 and the last
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 1);
}

TEST(Progress, SaysThatTheLinkIsEmulated) {
  FakeClock clock;
  std::ostringstream out;
  Progress progress({.link_emulated = true}, &clock, &out);
  progress.Report(Step(1, 1), Totals());
  EXPECT_THAT(out.str(), HasSubstr("[link emulated]"));
}

TEST(HumanBytes, PicksTheUnit) {
  EXPECT_EQ(HumanBytes(0), "0 B");
  EXPECT_EQ(HumanBytes(999), "999 B");
  EXPECT_EQ(HumanBytes(1500), "1.5 kB");
  EXPECT_EQ(HumanBytes(2'000'000'000), "2.0 GB");
}

}  // namespace
}  // namespace slimps
