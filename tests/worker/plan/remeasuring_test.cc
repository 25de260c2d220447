// SPDX-License-Identifier: Apache-2.0
// CompressionPlan where it decides pulls, and where it goes on measuring.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <thread>

#include "compress/policy/measured_rounds.h"
#include "worker/plan/compression_plan.h"

namespace slimps {
namespace {

using ::testing::HasSubstr;

constexpr absl::Duration kLong = absl::Seconds(30);
constexpr uint64_t kEvery = 10;

TensorPlan Tensor(const std::string& name, size_t elements) {
  return {.key = Key(name), .info = {}, .elements = elements, .partitions = {{0, 0, elements}}};
}

// Returns 40 tensors of each size from 4 KiB to 512 KiB.
std::vector<TensorPlan> ManyTensors() {
  std::vector<TensorPlan> tensors;
  for (size_t elements = 1 << 10; elements <= 1 << 17; elements *= 2) {
    for (int i = 0; i < 40; ++i) {
      tensors.push_back(Tensor(std::to_string(elements) + "/" + std::to_string(i), elements));
    }
  }
  return tensors;
}

// Returns a table where compressing saves 1/100 - 1/3200 us a byte, and costs what it saves on 3/4
// of `threshold` bytes.
ThresholdTable LoadedTable(const std::string& codec, uint64_t threshold) {
  ThresholdTable table(codec);
  for (uint64_t bytes = 4 << 10; bytes <= 512 << 10; bytes *= 2) {
    const auto size = static_cast<double>(bytes);
    table.AddRaw(bytes, absl::Microseconds(100 + size / 100));
    table.AddCompressed(
        bytes, absl::Microseconds(100 + size / 3200),
        absl::Microseconds(0.75 * static_cast<double>(threshold) * (1 / 100.0 - 1 / 3200.0)));
  }
  return table;
}

wire::CodecMap Decision(uint64_t generation, uint64_t from_round, uint64_t threshold) {
  wire::CodecMap map;
  map.set_version(generation + 1);
  map.set_from_round(from_round);
  map.set_has_threshold(true);
  map.set_threshold_bytes(threshold);
  map.set_codec_below("none");
  map.set_codec("1bit");
  return map;
}

class Remeasuring : public ::testing::Test {
 protected:
  Remeasuring() {
    for (const TensorPlan& tensor : tensors_) PushedAs(tensor, 1);
  }

  static std::unique_ptr<CompressionPlan> MakePlan() {
    return CompressionPlan::Create({.compression = "1bit",
                                    .fixed_threshold_bytes = {},
                                    .table = LoadedTable("1bit", 32 << 10),
                                    .remeasure_every = kEvery})
        .value();
  }

  std::string PushedAs(const TensorPlan& tensor, uint64_t round) {
    const auto codec = plan_->CodecFor(tensor, round, kLong);
    return codec.ok() ? (*codec)->spec().name : codec.status().ToString();
  }
  std::string AsDecided(const TensorPlan& tensor) const {
    return tensor.bytes() >= 32 << 10 ? "1bit" : "none";
  }

  // Records times for all chosen tensors, as they follow from size, codec and `bytes_per_us`.
  void MeasurePair(uint64_t pair, double bytes_per_us) {
    for (const uint64_t round : {pair * kEvery, pair * kEvery + 1}) {
      for (const TensorPlan& tensor : tensors_) {
        if (!plan_->MeasuresPush(tensor, round)) continue;
        const Codec* codec = plan_->CodecFor(tensor, round, kLong).value();
        const auto bytes = static_cast<double>(tensor.bytes());
        const double wire_bytes = codec == &plan_->compressor() ? bytes / 32 : bytes;
        plan_->RecordPush(tensor, round, absl::Microseconds(100 + wire_bytes / bytes_per_us),
                          absl::Microseconds(5));
      }
    }
  }

  const std::vector<TensorPlan> tensors_ = ManyTensors();
  std::unique_ptr<CompressionPlan> plan_ = MakePlan();
};

TEST_F(Remeasuring, OnePairOfRoundsInEveryTenMeasuresAFewTensorsBothWays) {
  for (uint64_t round = 1; round <= 60; ++round) {
    size_t measured = 0;
    std::set<uint64_t> sizes;
    for (const TensorPlan& tensor : tensors_) {
      const bool measures = plan_->MeasuresPush(tensor, round);
      const bool other_way = measures && round % kEvery == 1;
      EXPECT_EQ(PushedAs(tensor, round) == AsDecided(tensor), !other_way);
      EXPECT_FALSE(plan_->IsProfiled(round));
      if (!measures) continue;
      ++measured;
      sizes.insert(tensor.bytes());
    }
    const bool pair = round >= kEvery && round % kEvery <= 1;
    EXPECT_EQ(plan_->IsMeasured(round), pair) << round;
    if (!pair) {
      EXPECT_EQ(measured, 0u) << round;
      continue;
    }
    EXPECT_GE(measured, 4u) << round;
    EXPECT_LE(measured, tensors_.size() / 16) << round;
    EXPECT_TRUE(sizes.contains(16 << 10) && sizes.contains(32 << 10)) << round;
  }
}

TEST_F(Remeasuring, AllWorkersChooseTheSameAndAnotherTensorEachTime) {
  const auto other = CompressionPlan::Create({.compression = "1bit",
                                              .fixed_threshold_bytes = {},
                                              .table = LoadedTable("1bit", 32 << 10),
                                              .remeasure_every = kEvery});
  for (auto tensor = tensors_.rbegin(); tensor != tensors_.rend(); ++tensor) {
    ASSERT_TRUE((*other)->CodecFor(*tensor, 1, kLong).ok());
  }
  std::set<std::string> chosen_ever;
  size_t chosen = 0;
  for (const uint64_t round : {10, 20, 30, 40}) {
    for (const TensorPlan& tensor : tensors_) {
      ASSERT_EQ(plan_->MeasuresPush(tensor, round), (*other)->MeasuresPush(tensor, round));
      ASSERT_EQ(plan_->MeasuresPush(tensor, round), plan_->MeasuresPush(tensor, round + 1));
      if (tensor.bytes() != 32 << 10 || !plan_->MeasuresPush(tensor, round)) continue;
      chosen_ever.insert(tensor.key.typed_name());
      ++chosen;
    }
  }
  EXPECT_EQ(chosen, 16u);  // four small ones a pair
  EXPECT_GT(chosen_ever.size(), 4u);
}

TEST_F(Remeasuring, EachPairIsReportedOnceWithEverySize) {
  MeasurePair(1, 1000);
  EXPECT_FALSE(plan_->TakeReport(kEvery + 2).has_value());
  const auto report = plan_->TakeReport(kEvery + 3);
  ASSERT_TRUE(report.has_value());
  EXPECT_EQ(report->generation(), 1u);
  EXPECT_EQ(report->ready_round(), kEvery + 4);
  EXPECT_EQ(report->codec(), "1bit");
  EXPECT_EQ(report->rows_size(), 8);
  ASSERT_EQ(report->in_force_size(), 1);
  EXPECT_EQ(report->in_force(0).threshold_bytes(), 32u << 10);
  EXPECT_FALSE(plan_->TakeReport(kEvery + 3).has_value());
  EXPECT_FALSE(plan_->TakeReport(kEvery + 9).has_value());
  ASSERT_TRUE(plan_->OnCodecMap(Decision(1, kEvery + 8, 32 << 10)).ok());
  EXPECT_EQ(plan_->TakeReport(2 * kEvery + 3)->generation(), 2u);
}

TEST_F(Remeasuring, TwoPairsOnAnotherLinkReplaceWhatWasMeasuredBefore) {
  for (const uint64_t pair : {1, 2, 3}) MeasurePair(pair, 1000);
  ASSERT_TRUE(plan_->TakeReport(3 * kEvery + 3).has_value());
  ASSERT_TRUE(plan_->OnCodecMap(Decision(3, 3 * kEvery + 8, 32 << 10)).ok());
  for (const uint64_t pair : {4, 5}) MeasurePair(pair, 10);
  const auto report = plan_->TakeReport(5 * kEvery + 3);
  ASSERT_TRUE(report.has_value());
  int measured = 0;
  for (const wire::ThresholdRow& row : report->rows()) {
    if (row.bytes() != 32 << 10) continue;
    EXPECT_NEAR(row.t_c_ms(), 0.1 + 3.2768, 0.01);
    ++measured;
  }
  EXPECT_EQ(measured, 1);
}

TEST_F(Remeasuring, ASampleOlderThanAllThatIsKeptChangesNothing) {
  const auto reported = [this](std::vector<uint64_t> pairs) {
    plan_ = MakePlan();
    for (const TensorPlan& tensor : tensors_) PushedAs(tensor, 1);
    for (const uint64_t pair : pairs) MeasurePair(pair, pair == 1 ? 10 : 1000);
    return plan_->TakeReport(4 * kEvery + 3)->SerializeAsString();
  };
  EXPECT_EQ(reported({2, 3, 4, 1}), reported({2, 3, 4}));
  EXPECT_EQ(reported({1, 2, 3, 4}), reported({2, 3, 4}));
}

TEST_F(Remeasuring, NoRoundBeginsWithoutTheAnswerThatCouldHoldForIt) {
  ASSERT_TRUE(plan_->TakeReport(kEvery + 3).has_value());
  const TensorPlan& tensor = tensors_.front();  // 4 KiB
  EXPECT_EQ(PushedAs(tensor, kEvery + 7), "none");
  EXPECT_EQ(plan_->CodecFor(tensor, kEvery + 8, absl::ZeroDuration()).status().code(),
            absl::StatusCode::kDeadlineExceeded);
  std::string pushed;
  std::thread waiter([&] { pushed = PushedAs(tensor, kEvery + 8); });
  ASSERT_TRUE(plan_->UnansweredReport().has_value());
  ASSERT_TRUE(plan_->OnCodecMap(Decision(1, kEvery + 8, 1024)).ok());
  waiter.join();
  EXPECT_EQ(pushed, "1bit");
  EXPECT_EQ(PushedAs(tensor, kEvery + 7), "none");  // earlier rounds stay as they were
  EXPECT_FALSE(plan_->UnansweredReport().has_value());
}

TEST_F(Remeasuring, AnAnswerToAnEarlierReportIsNoAnswer) {
  ASSERT_TRUE(plan_->TakeReport(kEvery + 3).has_value());
  ASSERT_TRUE(plan_->OnCodecMap(Decision(1, kEvery + 8, 32 << 10)).ok());
  ASSERT_TRUE(plan_->TakeReport(2 * kEvery + 3).has_value());
  ASSERT_TRUE(plan_->OnCodecMap(Decision(1, kEvery + 8, 32 << 10)).ok());
  EXPECT_TRUE(plan_->UnansweredReport().has_value());
  ASSERT_TRUE(plan_->OnCodecMap(Decision(2, 2 * kEvery + 8, 32 << 10)).ok());
  EXPECT_FALSE(plan_->UnansweredReport().has_value());
  // An answer that was under way for long does not undo the newer one.
  ASSERT_TRUE(plan_->OnCodecMap(Decision(1, kEvery + 8, 32 << 10)).ok());
  EXPECT_EQ(plan_->decision()->version(), 3u);
}

TEST_F(Remeasuring, TrainingGoesOnWhereNoAnswerEverComes) {
  ASSERT_TRUE(plan_->TakeReport(kEvery + 3).has_value());
  const TensorPlan& tensor = tensors_.front();
  for (int i = 1; i < CompressionPlan::kPatience; ++i) {
    EXPECT_FALSE(plan_->CodecFor(tensor, kEvery + 8, absl::ZeroDuration()).ok());
  }
  EXPECT_TRUE(plan_->CodecFor(tensor, kEvery + 8, absl::ZeroDuration()).ok());
  EXPECT_EQ(PushedAs(tensor, kEvery + 9), "none");
  // The next report and a late answer still work.
  EXPECT_TRUE(plan_->TakeReport(2 * kEvery + 3).has_value());
  ASSERT_TRUE(plan_->OnCodecMap(Decision(2, 2 * kEvery + 8, 1024)).ok());
  EXPECT_EQ(PushedAs(tensor, 2 * kEvery + 8), "1bit");
}

TEST_F(Remeasuring, TheLastReportSaysThatNoOtherComes) {
  const auto reports = plan_->TakeLastReports();
  ASSERT_EQ(reports.size(), 1u);
  EXPECT_EQ(reports[0].generation(), MeasuredRounds::kLastGeneration);
  EXPECT_EQ(reports[0].rows_size(), 0);
}

TEST(RemeasuringOptions, TooShortAPeriodIsRefused) {
  const auto plan = CompressionPlan::Create(
      {.compression = "1bit", .fixed_threshold_bytes = {}, .table = {}, .remeasure_every = 7});
  EXPECT_EQ(plan.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(plan.status().message()), HasSubstr("remeasure_every=7: expected 0"));
}

TEST(RemeasuringOptions, AFixedThresholdIsNotMeasured) {
  const auto plan = CompressionPlan::Create(
      {.compression = "1bit", .fixed_threshold_bytes = 4096, .table = {}, .remeasure_every = 10});
  const TensorPlan tensor = Tensor("w", 1000);
  for (uint64_t round = 1; round <= 60; ++round) {
    EXPECT_FALSE((*plan)->MeasuresPush(tensor, round));
    EXPECT_FALSE((*plan)->TakeReport(round).has_value());
  }
}

// ---- pulls --------------------------------------------------------------------------------------

TEST(PullPlan, FixedThresholdDecidesBySize) {
  const auto plan = CompressionPlan::Create({.table = {},
                                             .pull_compression = "1bit",
                                             .fixed_pull_threshold_bytes = 4096,
                                             .pull_table = {}});
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ((*plan)->ChangeCodecFor(Tensor("small", 1023), 1), "");
  EXPECT_EQ((*plan)->ChangeCodecFor(Tensor("large", 1024), 1), "1bit");
  EXPECT_EQ((*plan)->decision()->pull_threshold_bytes(), 4096u);
  EXPECT_EQ((*plan)->compressor().spec().name, "none");
  EXPECT_FALSE((*plan)->IsProfiled(1));
}

TEST(PullPlan, UnknownCodecIsRefused) {
  EXPECT_EQ(CompressionPlan::Create({.table = {}, .pull_compression = "3bit", .pull_table = {}})
                .status()
                .code(),
            absl::StatusCode::kInvalidArgument);
}

TEST(PullPlan, ProfilingAsksForChangesInEvenRoundsAndReportsPullsAlone) {
  const auto plan = CompressionPlan::Create({.fixed_threshold_bytes = {},
                                             .pre_steps = 4,
                                             .table = {},
                                             .pull_compression = "2bit",
                                             .pull_table = {}});
  const TensorPlan tensor = Tensor("w", 1000);
  for (uint64_t round = 1; round <= 4; ++round) {
    EXPECT_TRUE((*plan)->IsProfiled(round));
    EXPECT_FALSE((*plan)->MeasuresPush(tensor, round));  // pushes are not compressed at all
    EXPECT_EQ((*plan)->MeasuresPull(tensor, round), round > 2);
    EXPECT_EQ((*plan)->ChangeCodecFor(tensor, round), round == 3 ? "" : "2bit");
  }
  (*plan)->RecordPull(tensor, 2, absl::Milliseconds(900), {});  // a cold one
  (*plan)->RecordPull(tensor, 3, absl::Milliseconds(8), {});
  (*plan)->RecordPull(tensor, 4, absl::Milliseconds(2), absl::Milliseconds(1));
  const auto report = (*plan)->TakeReport(5);
  ASSERT_TRUE(report.has_value());
  EXPECT_EQ(report->codec(), "");
  EXPECT_EQ(report->pull_codec(), "2bit");
  ASSERT_EQ(report->rows_size(), 1);
  EXPECT_EQ(report->rows(0).direction(), wire::PULL);
  EXPECT_DOUBLE_EQ(report->rows(0).t_c_ms(), 8);
  EXPECT_DOUBLE_EQ(report->rows(0).t_cq_ms(), 2);
  EXPECT_DOUBLE_EQ(report->rows(0).t_pq_ms(), 1);
  EXPECT_EQ((*plan)->ChangeCodecFor(tensor, 5), "2bit");
  wire::CodecMap map;
  map.set_version(1);
  map.set_from_round(6);
  map.set_pull_codec("2bit");
  map.set_has_pull_threshold(true);
  map.set_pull_threshold_bytes(4000);
  ASSERT_TRUE((*plan)->OnCodecMap(map).ok());
  EXPECT_EQ((*plan)->ChangeCodecFor(tensor, 6), "2bit");
  EXPECT_EQ((*plan)->ChangeCodecFor(tensor, 5), "2bit");
  EXPECT_EQ((*plan)->ChangeCodecFor(Tensor("small", 999), 6), "");
  EXPECT_EQ((*(*plan)->CodecFor(tensor, 6, kLong))->spec().name, "none");
  map.set_version(2);
  map.set_pull_codec("3bit");
  EXPECT_EQ((*plan)->OnCodecMap(map).code(), absl::StatusCode::kInvalidArgument);
}

TEST(PullPlan, AFixedPushThresholdStaysBesideAMeasuredPullThreshold) {
  const auto plan = CompressionPlan::Create({.compression = "1bit",
                                             .fixed_threshold_bytes = 4096,
                                             .pre_steps = 4,
                                             .table = {},
                                             .pull_compression = "2bit",
                                             .pull_table = {}});
  const TensorPlan tensor = Tensor("w", 1024);
  for (uint64_t round = 1; round <= 4; ++round) {
    EXPECT_EQ((*(*plan)->CodecFor(tensor, round, kLong))->spec().name, "1bit");
  }
  ASSERT_TRUE((*plan)->TakeReport(5).has_value());
  wire::CodecMap map;
  map.set_version(1);
  map.set_from_round(6);
  map.set_codec_below("none");
  map.set_pull_codec("2bit");
  ASSERT_TRUE((*plan)->OnCodecMap(map).ok());
  EXPECT_EQ((*(*plan)->CodecFor(tensor, 6, kLong))->spec().name, "1bit");
  EXPECT_TRUE((*plan)->decision()->has_threshold());
  EXPECT_EQ((*plan)->decision()->threshold_bytes(), 4096u);
  EXPECT_EQ((*plan)->decision()->codec(), "1bit");
}

TEST(PullPlan, PullsAreMeasuredAgainUnderTheirOwnThreshold) {
  const auto plan = CompressionPlan::Create({.compression = "1bit",
                                             .fixed_threshold_bytes = {},
                                             .table = LoadedTable("1bit", 16 << 10),
                                             .pull_compression = "2bit",
                                             .fixed_pull_threshold_bytes = {},
                                             .pull_table = LoadedTable("2bit", 128 << 10),
                                             .remeasure_every = kEvery});
  ASSERT_TRUE(plan.ok()) << plan.status();
  const std::vector<TensorPlan> tensors = ManyTensors();
  for (const TensorPlan& tensor : tensors) ASSERT_TRUE((*plan)->CodecFor(tensor, 1, kLong).ok());
  std::set<uint64_t> pushed, pulled;
  for (const TensorPlan& tensor : tensors) {
    if ((*plan)->MeasuresPush(tensor, kEvery)) pushed.insert(tensor.bytes());
    if (!(*plan)->MeasuresPull(tensor, kEvery)) continue;
    pulled.insert(tensor.bytes());
    const bool compressed = tensor.bytes() >= 128 << 10;
    EXPECT_EQ((*plan)->ChangeCodecFor(tensor, kEvery), compressed ? "2bit" : "");
    EXPECT_EQ((*plan)->ChangeCodecFor(tensor, kEvery + 1), compressed ? "" : "2bit");
    (*plan)->RecordPull(tensor, kEvery, absl::Milliseconds(7), absl::Milliseconds(1));
    (*plan)->RecordPull(tensor, kEvery + 1, absl::Milliseconds(7), absl::Milliseconds(1));
    (*plan)->RecordPull(tensor, kEvery + 2, absl::Hours(1),
                        absl::Milliseconds(1));  // not in the measured pair
  }
  EXPECT_TRUE(pushed.contains(8 << 10) && pushed.contains(16 << 10));
  EXPECT_TRUE(pulled.contains(64 << 10) && pulled.contains(128 << 10));
  const auto report = (*plan)->TakeReport(kEvery + 3);
  ASSERT_TRUE(report.has_value());
  EXPECT_EQ(report->pull_codec(), "2bit");
  for (const wire::ThresholdRow& row : report->rows()) {
    if (row.direction() != wire::PULL || row.bytes() != 128 << 10) continue;
    EXPECT_NEAR(row.t_c_ms(), (7 + 1.41072) / 2, 0.01);  // with the loaded table's value
  }
}

}  // namespace
}  // namespace slimps
