// SPDX-License-Identifier: Apache-2.0
#include "worker/plan/compression_plan.h"

#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"

namespace slimps {
namespace {

constexpr absl::Duration kLong = absl::Seconds(30);

TensorPlan Tensor(const char* name, size_t elements) {
  return {.key = Key(name), .info = {}, .elements = elements, .partitions = {{0, 0, elements}}};
}

std::string CodecName(CompressionPlan& plan, const TensorPlan& tensor, uint64_t round) {
  const auto codec = plan.CodecFor(tensor, round, kLong);
  return codec.ok() ? (*codec)->spec().name : codec.status().ToString();
}

TEST(CompressionPlan, WithoutCompressionEverythingIsRawFromTheStart) {
  auto plan = CompressionPlan::Create({});
  ASSERT_TRUE(plan.ok());
  EXPECT_FALSE((*plan)->IsProfiled(1));
  EXPECT_EQ(CodecName(**plan, Tensor("w", 1 << 20), 1), "none");
  EXPECT_FALSE((*plan)->TakeReport(1000).has_value());
  EXPECT_TRUE((*plan)->TakeLastReports().empty());
}

TEST(CompressionPlan, FixedThresholdDecidesBySize) {
  auto plan =
      CompressionPlan::Create({.compression = "1bit", .fixed_threshold_bytes = 4096, .table = {}});
  ASSERT_TRUE(plan.ok());
  EXPECT_EQ(CodecName(**plan, Tensor("small", 1023), 1), "none");
  EXPECT_EQ(CodecName(**plan, Tensor("large", 1024), 1), "1bit");
}

TEST(CompressionPlan, ThresholdZeroCompressesEverything) {
  auto plan =
      CompressionPlan::Create({.compression = "2bit", .fixed_threshold_bytes = 0, .table = {}});
  EXPECT_EQ(CodecName(**plan, Tensor("bias", 1), 1), "2bit");
}

TEST(CompressionPlan, WhatIsNotCompressedTravelsInItsOwnPrecision) {
  auto plan =
      CompressionPlan::Create({.compression = "1bit", .fixed_threshold_bytes = 4096, .table = {}});
  TensorPlan half = Tensor("half", 100);
  half.info.set_dtype(wire::FLOAT16);
  EXPECT_EQ(CodecName(**plan, half, 1), "fp16");
  half.info.set_dtype(wire::BFLOAT16);
  EXPECT_EQ(CodecName(**plan, half, 1), "bf16");
  TensorPlan large = Tensor("large", 5000);
  large.info.set_dtype(wire::FLOAT16);
  EXPECT_EQ(CodecName(**plan, large, 1), "1bit");
  EXPECT_EQ((*plan)->compressor().spec().name, "1bit");
}

TEST(CompressionPlan, UnknownCodecIsRefused) {
  const auto plan =
      CompressionPlan::Create({.compression = "1bitt", .fixed_threshold_bytes = {}, .table = {}});
  EXPECT_EQ(plan.status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(CompressionPlan, ProfilingPushesOddRoundsRawAndEvenRoundsCompressed) {
  auto plan = CompressionPlan::Create(
      {.compression = "1bit", .fixed_threshold_bytes = {}, .pre_steps = 4, .table = {}});
  const TensorPlan tensor = Tensor("w", 1000);
  for (uint64_t round = 1; round <= 4; ++round) {
    EXPECT_TRUE((*plan)->IsProfiled(round));
    EXPECT_EQ((*plan)->MeasuresPush(tensor, round), round > 2) << "the first two fill caches";
    EXPECT_EQ(CodecName(**plan, tensor, round), round == 3 ? "none" : "1bit");
  }
  EXPECT_FALSE((*plan)->IsProfiled(5));
}

// Returns how many of 100'000 elements the plan's codec sends in `round`.
size_t Sent(CompressionPlan& plan, uint64_t round) {
  const TensorPlan tensor = Tensor("w", 100'000);
  const std::vector<float> gradient(tensor.elements, 1.0f);
  std::vector<float> residual(tensor.elements), momentum(tensor.elements);
  const auto codec = plan.CodecFor(tensor, round, kLong);
  if (!codec.ok()) return 0;
  std::vector<std::byte> payload((*codec)->MaxPayloadBytes(tensor.elements));
  const auto stats = (*codec)->Encode({.gradient = gradient,
                                       .residual = residual,
                                       .momentum = momentum,
                                       .context = {.round = round}},
                                      payload);
  return stats.ok() ? stats->elements_sent : 0;
}

TEST(CompressionPlan, TheProfileMeasuresACodecAsItIsAfterItsWarmUp) {
  auto plan = CompressionPlan::Create({.compression = "dgc:ratio=0.001,warmup=20", .pre_steps = 4});
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(Sent(**plan, 1), 25'000u);  // in the warm-up, and not measured
  EXPECT_EQ(Sent(**plan, 3), 100'000u);
  EXPECT_EQ(Sent(**plan, 4), 100u);
  (*plan)->RecordPush(Tensor("w", 100'000), 3, absl::Milliseconds(8), {});
  (*plan)->RecordPush(Tensor("w", 100'000), 4, absl::Milliseconds(2), absl::Milliseconds(1));
  const auto report = (*plan)->TakeReport(5);
  ASSERT_TRUE(report.has_value());
  EXPECT_EQ(report->codec(), "dgc:ratio=0.001,warmup=20");
  EXPECT_DOUBLE_EQ(report->rows(0).t_c_ms(), 8);
  EXPECT_DOUBLE_EQ(report->rows(0).t_cq_ms(), 2);
  wire::CodecMap map;
  map.set_version(1);
  map.set_from_round(6);
  map.set_has_threshold(true);
  map.set_codec_below("none");
  map.set_codec(report->codec());
  ASSERT_TRUE((*plan)->OnCodecMap(map).ok());
  EXPECT_EQ(Sent(**plan, 6), 25'000u);  // in the warm-up
  EXPECT_EQ(Sent(**plan, 101), 100u);   // after it
}

TEST(CompressionPlan, MeasuredRoundsMeasureACodecAsItIsAfterItsWarmUp) {
  ThresholdTable table("topk:ratio=0.001,warmup=100");
  table.AddRaw(4, absl::Milliseconds(8));
  table.AddCompressed(4, absl::Milliseconds(1), absl::Milliseconds(1));
  auto plan = CompressionPlan::Create(
      {.compression = "topk:ratio=0.001,warmup=100", .table = table, .remeasure_every = 8});
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(Sent(**plan, 7), 25'000u);
  EXPECT_EQ(Sent(**plan, 8), 100u);      // measured, as decided
  EXPECT_EQ(Sent(**plan, 9), 100'000u);  // the other way round
  EXPECT_EQ(Sent(**plan, 10), 25'000u);
}

TEST(CompressionPlan, WhatLiesOnThisMachineIsPushedAlikeButNotMeasured) {
  CompressionPlanOptions options{
      .compression = "1bit", .pre_steps = 4, .pull_compression = "1bit", .remeasure_every = 8};
  options.is_measured = [](const TensorPlan& tensor) {
    return tensor.key.typed_name() != "s:here";
  };
  auto plan = CompressionPlan::Create(options);
  const TensorPlan here = Tensor("here", 1000), far = Tensor("far", 2000);
  for (uint64_t round = 1; round <= 4; ++round) {
    EXPECT_FALSE((*plan)->MeasuresPush(here, round) || (*plan)->MeasuresPull(here, round));
    if (round > 2) {
      EXPECT_TRUE((*plan)->MeasuresPush(far, round) && (*plan)->MeasuresPull(far, round));
    }
    EXPECT_EQ(CodecName(**plan, here, round), CodecName(**plan, far, round)) << round;
    EXPECT_EQ((*plan)->ChangeCodecFor(here, round), (*plan)->ChangeCodecFor(far, round));
    for (const TensorPlan& tensor : {here, far}) {
      (*plan)->RecordPush(tensor, round, absl::Milliseconds(8), absl::Milliseconds(1));
      (*plan)->RecordPull(tensor, round, absl::Milliseconds(8), absl::Milliseconds(1));
    }
  }
  const auto report = (*plan)->TakeReport(5);
  ASSERT_TRUE(report.has_value());
  for (const wire::ThresholdRow& row : report->rows()) {
    EXPECT_EQ(row.raw_samples(), row.bytes() == 8000 ? 1u : 0u);
  }
  EXPECT_EQ(report->rows_size(), 4);
}

TEST(CompressionPlan, ReportHoldsTheCountedRoundsAndIsTakenOnce) {
  auto plan = CompressionPlan::Create(
      {.compression = "1bit", .fixed_threshold_bytes = {}, .pre_steps = 4, .table = {}});
  const TensorPlan tensor = Tensor("w", 1000);
  for (uint64_t round = 1; round <= 4; ++round) CodecName(**plan, tensor, round);
  (*plan)->RecordPush(tensor, 1, absl::Milliseconds(900), {});  // a cold one: not counted
  (*plan)->RecordPush(tensor, 2, absl::Milliseconds(900), absl::Milliseconds(900));
  (*plan)->RecordPush(tensor, 3, absl::Milliseconds(8), {});
  (*plan)->RecordPush(tensor, 4, absl::Milliseconds(2), absl::Milliseconds(1));
  EXPECT_FALSE((*plan)->TakeReport(4).has_value());
  const auto report = (*plan)->TakeReport(5);
  ASSERT_TRUE(report.has_value());
  ASSERT_EQ(report->rows_size(), 1);
  EXPECT_EQ(report->rows(0).bytes(), 4000u);
  EXPECT_DOUBLE_EQ(report->rows(0).t_c_ms(), 8);
  EXPECT_DOUBLE_EQ(report->rows(0).t_cq_ms(), 2);
  EXPECT_DOUBLE_EQ(report->rows(0).t_pq_ms(), 1);
  EXPECT_EQ(report->ready_round(), 5u);
  EXPECT_EQ(report->generation(), 0u);
  EXPECT_EQ(report->codec(), "1bit");
  EXPECT_EQ(report->pull_codec(), "");
  EXPECT_FALSE((*plan)->TakeReport(5).has_value());
  EXPECT_EQ((*plan)->UnansweredReport()->SerializeAsString(), report->SerializeAsString());
}

TEST(CompressionPlan, ATensorsOwnPrecisionIsRawThoughItBeTheCodecsToo) {
  auto plan = CompressionPlan::Create(
      {.compression = "fp16", .fixed_threshold_bytes = {}, .pre_steps = 4, .table = {}});
  TensorPlan half = Tensor("half", 1000);
  half.info.set_dtype(wire::FLOAT16);
  CodecName(**plan, half, 1);
  ASSERT_EQ(CodecName(**plan, half, 3), "fp16");
  (*plan)->RecordPush(half, 3, absl::Milliseconds(8), {});
  (*plan)->RecordPush(half, 4, absl::Milliseconds(2), absl::Milliseconds(1));
  const auto report = (*plan)->TakeReport(5);
  ASSERT_TRUE(report.has_value());
  EXPECT_DOUBLE_EQ(report->rows(0).t_c_ms(), 8);
  EXPECT_DOUBLE_EQ(report->rows(0).t_cq_ms(), 2);
}

TEST(CompressionPlan, OnlyPullsInFullPrecisionAreMeasured) {
  auto plan = CompressionPlan::Create({.pre_steps = 4, .pull_compression = "1bit"});
  TensorPlan tensor = Tensor("w", 1000);
  for (const uint64_t round : {1, 3}) CodecName(**plan, tensor, round);
  EXPECT_TRUE((*plan)->MeasuresPull(tensor, 3));
  for (const wire::DType half : {wire::FLOAT16, wire::BFLOAT16}) {
    tensor.info.set_dtype(half);
    for (uint64_t round = 1; round <= 4; ++round) {
      EXPECT_FALSE((*plan)->MeasuresPull(tensor, round)) << "its answers are the same in each";
    }
  }
}

TEST(CompressionPlan, RoundBehindTheFirstUndecidedOneWaitsForTheDecision) {
  auto plan = CompressionPlan::Create(
      {.compression = "1bit", .fixed_threshold_bytes = {}, .pre_steps = 2, .table = {}});
  const TensorPlan tensor = Tensor("w", 1000);
  ASSERT_TRUE((*plan)->TakeReport(3).has_value());
  EXPECT_EQ(CodecName(**plan, tensor, 3), "1bit");  // undecided: as asked for, without waiting
  EXPECT_EQ((*plan)->CodecFor(tensor, 4, absl::ZeroDuration()).status().code(),
            absl::StatusCode::kDeadlineExceeded);
  std::string codec;
  std::thread waiter([&] { codec = CodecName(**plan, tensor, 4); });
  wire::CodecMap map;
  map.set_version(1);
  map.set_from_round(4);
  map.set_has_threshold(true);
  map.set_threshold_bytes(4000);
  map.set_codec_below("none");
  map.set_codec("1bit");
  EXPECT_TRUE((*plan)->OnCodecMap(map).ok());
  waiter.join();
  EXPECT_EQ(codec, "1bit");
  EXPECT_EQ(CodecName(**plan, Tensor("small", 999), 4), "none");
  ASSERT_TRUE((*plan)->decision().has_value());
  EXPECT_EQ((*plan)->decision()->threshold_bytes(), 4000u);
}

TEST(CompressionPlan, FailureWakesWhoeverWaits) {
  auto plan = CompressionPlan::Create(
      {.compression = "1bit", .fixed_threshold_bytes = {}, .pre_steps = 2, .table = {}});
  ASSERT_TRUE((*plan)->TakeReport(3).has_value());
  absl::Status status;
  std::thread waiter([&] { status = (*plan)->CodecFor(Tensor("w", 10), 9, kLong).status(); });
  (*plan)->Fail(absl::UnavailableError("server 1 is gone"));
  waiter.join();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
}

TEST(CompressionPlan, LoadedTableDecidesAtOnce) {
  const ThresholdRow rows[] = {{.bytes = 100,
                                .t_c = absl::Milliseconds(1),
                                .t_cq = absl::Milliseconds(1),
                                .t_pq = absl::Milliseconds(1),
                                .raw_samples = 1,
                                .compressed_samples = 1},
                               {.bytes = 4000,
                                .t_c = absl::Milliseconds(9),
                                .t_cq = absl::Milliseconds(1),
                                .t_pq = absl::Milliseconds(1),
                                .raw_samples = 1,
                                .compressed_samples = 1}};
  auto table = ThresholdTable::FromRows("1bit", rows);
  ASSERT_TRUE(table.ok());
  auto plan = CompressionPlan::Create(
      {.compression = "1bit", .fixed_threshold_bytes = {}, .table = *table});
  EXPECT_FALSE((*plan)->IsProfiled(1));
  EXPECT_EQ(CodecName(**plan, Tensor("a", 25), 1), "none");
  EXPECT_EQ(CodecName(**plan, Tensor("b", 1000), 1), "1bit");
  EXPECT_EQ((*plan)->decision()->table_size(), 2);
  const auto other = CompressionPlan::Create(
      {.compression = "2bit", .fixed_threshold_bytes = {}, .table = *table});
  EXPECT_EQ(other.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_NE(other.status().message().find("2bit"), absl::string_view::npos) << other.status();
}

struct MapFields {
  uint64_t version = 1;
  uint64_t from_round = 0;
  uint64_t threshold_bytes = 0;
  const char* codec = "1bit";
};

wire::CodecMap MapOf(const MapFields& fields) {
  wire::CodecMap map;
  map.set_version(fields.version);
  map.set_from_round(fields.from_round);
  map.set_has_threshold(true);
  map.set_threshold_bytes(fields.threshold_bytes);
  map.set_codec_below("none");
  map.set_codec(fields.codec);
  return map;
}

std::unique_ptr<CompressionPlan> Profiling() {
  return *CompressionPlan::Create(
      {.compression = "1bit", .fixed_threshold_bytes = {}, .pre_steps = 2, .table = {}});
}

TEST(CodecMapOfAPlan, HoldsFromItsRoundOnAndTheOneBeforeUntilThen) {
  const auto plan = Profiling();
  ASSERT_TRUE(plan->OnCodecMap(MapOf({.version = 1, .from_round = 4, .threshold_bytes = 0})).ok());
  ASSERT_TRUE(
      plan->OnCodecMap(MapOf({.version = 2, .from_round = 9, .threshold_bytes = 8000})).ok());
  const TensorPlan tensor = Tensor("w", 1000);
  for (uint64_t round = 4; round <= 12; ++round) {
    EXPECT_EQ(CodecName(*plan, tensor, round), round < 9 ? "1bit" : "none") << round;
  }
  EXPECT_EQ(plan->decision()->version(), 2u);
}

TEST(CodecMapOfAPlan, AnOlderOneIsNoneAndTheSameAgainChangesNothing) {
  const auto plan = Profiling();
  ASSERT_TRUE(plan->OnCodecMap(MapOf({.version = 2, .from_round = 4, .threshold_bytes = 0})).ok());
  EXPECT_TRUE(
      plan->OnCodecMap(MapOf({.version = 1, .from_round = 4, .threshold_bytes = 8000})).ok());
  EXPECT_TRUE(plan->OnCodecMap(MapOf({.version = 2, .from_round = 4, .threshold_bytes = 0})).ok());
  EXPECT_EQ(plan->decision()->version(), 2u);
  EXPECT_EQ(CodecName(*plan, Tensor("w", 1000), 4), "1bit");
}

TEST(CodecMapOfAPlan, OneThatContradictsWhatWasDecidedIsRefused) {
  const auto plan = Profiling();
  ASSERT_TRUE(plan->OnCodecMap(MapOf({.version = 2, .from_round = 9, .threshold_bytes = 0})).ok());
  const absl::Status twice =
      plan->OnCodecMap(MapOf({.version = 2, .from_round = 9, .threshold_bytes = 8000}));
  EXPECT_EQ(twice.code(), absl::StatusCode::kAlreadyExists);
  EXPECT_NE(twice.message().find("version 2 came twice"), absl::string_view::npos) << twice;
  const absl::Status back =
      plan->OnCodecMap(MapOf({.version = 3, .from_round = 8, .threshold_bytes = 8000}));
  EXPECT_EQ(back.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_NE(back.message().find("from round 8, expected 9"), absl::string_view::npos) << back;
  EXPECT_EQ(CodecName(*plan, Tensor("w", 1000), 9), "1bit");
}

TEST(CodecMapOfAPlan, CodecsThatThisWorkerDoesNotKnowAreRefusedWherever) {
  const auto refused = [](const wire::CodecMap& map) {
    const auto plan = Profiling();
    const absl::Status status = plan->OnCodecMap(map);
    EXPECT_FALSE(plan->decision().has_value()) << "nothing of it holds";
    return status.code() == absl::StatusCode::kInvalidArgument;
  };
  EXPECT_TRUE(
      refused(MapOf({.version = 1, .from_round = 4, .threshold_bytes = 0, .codec = "3bit"})));
  wire::CodecMap map = MapOf({.version = 1, .from_round = 4, .threshold_bytes = 0});
  map.set_codec_below("half");
  EXPECT_TRUE(refused(map));
  map = MapOf({.version = 1, .from_round = 4, .threshold_bytes = 0});
  map.add_entries()->set_codec("1bit:scaling=l3");
  EXPECT_TRUE(refused(map));
}

TEST(CodecMapOfAPlan, KeysOfTheirOwnDoNotFollowTheThreshold) {
  const auto plan = Profiling();
  const TensorPlan own = Tensor("own", 10), other = Tensor("other", 10);
  wire::CodecMap map = MapOf({.version = 1, .from_round = 4, .threshold_bytes = 8000});
  map.add_entries()->set_key(own.key.id());
  map.mutable_entries(0)->set_codec("2bit");
  ASSERT_TRUE(plan->OnCodecMap(map).ok());
  EXPECT_EQ(CodecName(*plan, own, 4), "2bit");
  EXPECT_EQ(CodecName(*plan, other, 4), "none");
}

TEST(CodecMapOfAPlan, DoesNotMoveAFixedThreshold) {
  const auto plan =
      *CompressionPlan::Create({.compression = "1bit", .fixed_threshold_bytes = 4000, .table = {}});
  ASSERT_TRUE(plan->OnCodecMap(
                      MapOf({.version = 1, .from_round = 1, .threshold_bytes = 0, .codec = "2bit"}))
                  .ok());
  EXPECT_EQ(CodecName(*plan, Tensor("small", 999), 5), "none");
  EXPECT_EQ(CodecName(*plan, Tensor("large", 1000), 5), "1bit");
  EXPECT_EQ(plan->decision()->threshold_bytes(), 4000u) << "what is said of it is what is in force";
  EXPECT_EQ(plan->decision()->codec(), "1bit");
}

TEST(CodecMapOfAPlan, AnswersTheReport) {
  const auto plan = Profiling();
  EXPECT_FALSE(plan->UnansweredReport().has_value());
  ASSERT_TRUE(plan->TakeReport(3).has_value());
  EXPECT_TRUE(plan->UnansweredReport().has_value());
  ASSERT_TRUE(plan->OnCodecMap(MapOf({.version = 1, .from_round = 4, .threshold_bytes = 0})).ok());
  EXPECT_FALSE(plan->UnansweredReport().has_value());
  EXPECT_TRUE(plan->TakeLastReports().empty()) << "nothing is left to say";
}

TEST(CompressionPlan, AJobThatEndsWhileItProfilesReportsWhatItHas) {
  const auto plan = Profiling();
  const std::vector<wire::ThresholdReport> last = plan->TakeLastReports();
  ASSERT_EQ(last.size(), 1u);
  EXPECT_EQ(last[0].codec(), "1bit");
  EXPECT_EQ(last[0].ready_round(), 3u);
  EXPECT_TRUE(plan->TakeLastReports().empty()) << "said once";
}

// Returns what a profile sends raw or, for pulls, pulls raw, in steps' worth of bytes. A measured
// pull comes twice.
double RawSteps(CompressionPlan& plan, const std::vector<TensorPlan>& tensors, bool pulls) {
  double raw = 0, all = 0;
  for (const TensorPlan& tensor : tensors) all += static_cast<double>(tensor.bytes());
  for (uint64_t round = 1; round <= 21; ++round) {
    for (const TensorPlan& tensor : tensors) {
      const bool pushed_raw = CodecName(plan, tensor, round) == "none";
      const bool pulled_raw = plan.ChangeCodecFor(tensor, round).empty();
      if (pulls ? pulled_raw : pushed_raw) raw += static_cast<double>(tensor.bytes());
    }
  }
  return raw * (pulls ? 2 : 1) / all;
}

// Tensors of ResNet-18's sizes, and models in which each size is a large share of the bytes.
TEST(CompressionPlan, TheProfileSendsAtMostFiveStepsWorthOfRawBytes) {
  std::vector<TensorPlan> resnet;
  for (const auto& [elements, count] : std::map<size_t, int>{{64, 10},
                                                             {128, 10},
                                                             {256, 10},
                                                             {512, 11},
                                                             {1000, 1},
                                                             {8192, 1},
                                                             {9408, 1},
                                                             {32768, 1},
                                                             {36864, 4},
                                                             {73728, 1},
                                                             {131072, 1},
                                                             {147456, 3},
                                                             {294912, 1},
                                                             {512000, 1},
                                                             {589824, 3},
                                                             {1179648, 1},
                                                             {2359296, 3}}) {
    for (int i = 0; i < count; ++i) {
      resnet.push_back(Tensor(absl::StrCat(elements, "/", i).c_str(), elements));
    }
  }
  const std::vector<TensorPlan> one = {Tensor("w", 1 << 20)};
  const std::vector<TensorPlan> alike = {Tensor("a", 1 << 20), Tensor("b", (1 << 20) + 1)};
  for (const bool pulls : {false, true}) {
    const std::pair<const std::vector<TensorPlan>&, double> models[] = {
        {resnet, 1}, {one, 5}, {alike, 5}};
    for (const auto& [tensors, most] : models) {
      CompressionPlanOptions options{.compression = "1bit"};
      if (pulls) options = {.compression = "none", .pull_compression = "1bit"};
      const auto plan = CompressionPlan::Create(options).value();
      const double raw = RawSteps(*plan, tensors, pulls);
      EXPECT_GT(raw, 0);
      EXPECT_LE(raw, most) << tensors.size() << " tensors, pulls " << pulls;
    }
  }
}

TEST(CompressionPlan, AfterAFailureTheFirstCauseIsToldAtOnce) {
  const auto plan = Profiling();
  ASSERT_TRUE(plan->TakeReport(3).has_value());
  plan->Fail(absl::UnavailableError("server 1 is gone"));
  plan->Fail(absl::InternalError("and more"));
  for (const uint64_t round : {4, 9}) {
    const absl::Status told = plan->CodecFor(Tensor("w", 10), round, kLong).status();
    EXPECT_EQ(told, absl::UnavailableError("server 1 is gone"));
  }
}

}  // namespace
}  // namespace slimps
