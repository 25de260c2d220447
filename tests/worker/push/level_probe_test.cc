// SPDX-License-Identifier: Apache-2.0
#include "worker/push/level_probe.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "compress/codec/lowrank/spectrum.h"
#include "compress/codec/phases.h"
#include "worker/device/device.h"

namespace slimps {
namespace {

constexpr char kLgreco[] = "lgreco:codec=topk:ratio=0.01,every=10";

std::vector<float> Normal(size_t elements, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> values(elements);
  for (float& value : values) value = normal(random);
  return values;
}

double Norm2(const std::vector<float>& values) {
  double sum = 0;
  for (const float x : values) sum += static_cast<double>(x) * x;
  return sum;
}

class LevelProbeTest : public ::testing::Test {
 protected:
  void Make(const std::string& policy, std::vector<size_t> partitions, float grad_scale = 1) {
    size_t offset = 0;
    for (const size_t elements : partitions) {
      tensor_.partitions.push_back({.server = 0, .offset = offset, .elements = elements});
      offset += elements;
    }
    tensor_.elements = offset;
    auto plan = CompressionPlan::Create({.policy = policy, .workers = 2});
    ASSERT_TRUE(plan.ok()) << plan.status();
    plan_ = *std::move(plan);
    ASSERT_TRUE(plan_->BeginPolicy({&tensor_}).ok());
    probe_ =
        std::make_unique<LevelProbe>(PayloadMakerOptions{.grad_scale = grad_scale}, MachineClock());
  }
  void Begin(uint64_t round) {
    round_ = round;
    began_ = SteadyTime() + static_cast<double>(round) * absl::Milliseconds(100);
    probe_->BeginRound(round, began_, plan_.get());
  }
  void See(size_t partition, const std::vector<float>& gradient,
           const std::vector<float>& residual = {}) {
    const std::shared_ptr<HostBuffer> buffer = device_->AllocateHost(gradient.size()).value();
    std::ranges::copy(gradient, buffer->floats().begin());
    const absl::Status seen =
        probe_->See({.tensor = &tensor_,
                     .partition = partition,
                     .round = round_,
                     .grad_buf = buffer,
                     .submitted = began_ + static_cast<double>(round_) * absl::Milliseconds(2)},
                    residual, plan_.get());
    ASSERT_TRUE(seen.ok()) << seen;
    EXPECT_TRUE(std::ranges::equal(buffer->floats(), gradient)) << "a probe commits nothing";
  }
  Report Take() { return probe_->Take(plan_.get()).value(); }

  const std::unique_ptr<Device> device_ = MakeHostDevice();
  TensorPlan tensor_{.key = Key("w"), .info = {}, .elements = 0, .partitions = {}};
  std::unique_ptr<CompressionPlan> plan_;
  std::unique_ptr<LevelProbe> probe_;
  uint64_t round_ = 0;
  SteadyTime began_;
};

TEST_F(LevelProbeTest, GradientsAreReadyWhenTheyAreSubmittedNotWhenTheyAreEncoded) {
  Make("joint:every=8", {1000});
  for (uint64_t round = 1; round <= 3; ++round) {
    Begin(round);
    See(0, std::vector<float>(1000, 1));
  }
  EXPECT_DOUBLE_EQ(Take().tensors[0].ready_ns, 4e6);  // 2, 4 and 6 ms
}

TEST_F(LevelProbeTest, OfASmallTensorTheFiguresAreThoseOfTheCodecs) {
  Make(kLgreco, {5000}, /*grad_scale=*/2);
  const std::vector<float> a = Normal(5000, 1), b = Normal(5000, 2);
  Begin(1);
  See(0, a, Normal(5000, 3));  // the basis is without feedback
  Begin(2);
  See(0, b);
  std::vector<float> sum(5000);
  for (size_t i = 0; i < sum.size(); ++i) sum[i] = 2 * a[i] + 2 * b[i];
  const Report report = Take();
  ASSERT_EQ(report.tensors.size(), 1u);
  const TensorReport& tensor = report.tensors[0];
  EXPECT_EQ(tensor.tensor.key, Key("w").id());
  EXPECT_NEAR(tensor.input_norm2, Norm2(sum), 1e-3 * Norm2(sum));
  const auto levels = plan_->LevelsOf(tensor_).value();
  ASSERT_EQ(tensor.levels.size(), levels.size());
  for (size_t i = 0; i < levels.size(); ++i) {
    std::vector<std::byte> payload(levels[i].codec->MaxPayloadBytes(5000));
    const auto stats = levels[i].codec->Encode({.gradient = sum}, payload);
    ASSERT_TRUE(stats.ok());
    EXPECT_EQ(tensor.levels[i].codec, levels[i].name);
    EXPECT_NEAR(tensor.levels[i].error_norm2, stats->error_norm2, 1e-3 * stats->error_norm2);
    EXPECT_EQ(tensor.levels[i].payload_bytes, stats->payload_bytes);
    EXPECT_GT(tensor.levels[i].encode_ns, 0);
  }
}

TEST_F(LevelProbeTest, ALargeTensorIsEstimatedFromItsSample) {
  Make(kLgreco, {200'000, 200'000, 100'001});
  const std::vector<float> values = Normal(500'001, 7);
  Begin(1);
  for (size_t i = 0; i < 3; ++i) {
    const auto first = values.begin() + static_cast<ptrdiff_t>(tensor_.partitions[i].offset);
    See(i, {first, first + static_cast<ptrdiff_t>(tensor_.partitions[i].elements)});
  }
  const Report report = Take();
  const TensorReport& tensor = report.tensors.at(0);
  EXPECT_NEAR(tensor.input_norm2, Norm2(values), 0.03 * Norm2(values));
  const auto levels = plan_->LevelsOf(tensor_).value();
  for (size_t i = 0; i < levels.size(); ++i) {
    double error = 0, bytes = 0;
    for (const PartitionPlan& partition : tensor_.partitions) {
      std::vector<std::byte> payload(levels[i].codec->MaxPayloadBytes(partition.elements));
      const auto stats = levels[i].codec->Encode(
          {.gradient = std::span(values).subspan(partition.offset, partition.elements)}, payload);
      ASSERT_TRUE(stats.ok());
      error += stats->error_norm2;
      bytes += static_cast<double>(stats->payload_bytes);
    }
    EXPECT_NEAR(tensor.levels[i].error_norm2, error, 0.04 * error) << levels[i].name;
    EXPECT_NEAR(static_cast<double>(tensor.levels[i].payload_bytes), bytes, 0.04 * bytes)
        << levels[i].name;
  }
}

// Every block is looked at within some reports, or rounds: what is large in one of them is seen.
TEST_F(LevelProbeTest, TheSamplesBlocksChange) {
  constexpr size_t kElements = 64 * kBlockElements;
  std::vector<float> one_block(kElements, 0.0f);
  std::fill_n(one_block.begin() + 21 * kBlockElements, kBlockElements, 1.0f);
  Make(kLgreco, {kElements});
  int reports = 0;
  for (uint64_t round = 1; round <= 160; round += 10) {
    for (const uint64_t each : {round, round + 9}) {
      Begin(each);
      See(0, one_block);
    }
    const Report report = Take();
    const double norm2 = report.tensors.at(0).input_norm2;
    if (norm2 == 0) continue;
    ++reports;
    EXPECT_DOUBLE_EQ(norm2, 16 * 4 * kBlockElements) << "both rounds of the same block";
  }
  EXPECT_EQ(reports, 1) << "of 16: each is of 4 of the 64 blocks";
}

TEST_F(LevelProbeTest, EachReportIsOfWhatCameSinceTheOneBefore) {
  Make(kLgreco, {600, 600});
  Begin(1);
  See(0, Normal(600, 1));
  EXPECT_TRUE(Take().tensors.empty()) << "a partition is missing";
  See(0, Normal(600, 1));
  See(1, Normal(600, 2));
  EXPECT_EQ(Take().tensors.size(), 1u);
  EXPECT_TRUE(Take().tensors.empty());
}

TEST_F(LevelProbeTest, SumsThatFp32CannotHoldAreLeftOut) {
  Make(kLgreco, {600});
  Begin(1);
  const std::vector<float> large(600, 3e38f);
  See(0, large);
  See(0, large);
  EXPECT_TRUE(Take().tensors.empty());
}

TEST_F(LevelProbeTest, AGradientThatIsNotFiniteSpoilsNoSum) {
  Make(kLgreco, {600});
  const std::vector<float> a = Normal(600, 1);
  std::vector<float> bad = Normal(600, 2);
  bad[3] = std::numeric_limits<float>::infinity();
  Begin(1);
  See(0, a);
  Begin(2);
  See(0, bad);
  const Report report = Take();
  ASSERT_EQ(report.tensors.size(), 1u);
  EXPECT_NEAR(report.tensors[0].input_norm2, Norm2(a), 1e-3 * Norm2(a));
}

TEST_F(LevelProbeTest, WhatWasSummedUpGoesOnElsewhere) {
  Make(kLgreco, {5000, 600});
  Begin(1);
  See(0, Normal(5000, 1));
  See(1, Normal(600, 2));
  wire::SavedPolicy saved;
  probe_->Save(&saved);
  Begin(2);
  See(0, Normal(5000, 3));
  See(1, Normal(600, 4));
  const Report through = Take();

  LevelProbe next({}, MachineClock());
  ASSERT_TRUE(next.Load(saved, {&tensor_}, plan_.get()).ok());
  std::swap(*probe_, next);
  See(0, Normal(5000, 3));
  See(1, Normal(600, 4));
  const Report resumed = Take();
  ASSERT_EQ(resumed.tensors.size(), 1u);
  EXPECT_EQ(resumed.tensors[0].input_norm2, through.tensors[0].input_norm2);
  for (size_t i = 0; i < resumed.tensors[0].levels.size(); ++i) {
    EXPECT_EQ(resumed.tensors[0].levels[i].error_norm2, through.tensors[0].levels[i].error_norm2);
  }
}

// Returns the least square of an error that a matrix of that rank can leave.
double BestError(const std::vector<float>& x, size_t rows, size_t rank) {
  const Spectrum spectrum =
      SpectrumOf({.rows = rows, .columns = x.size() / rows, .values = x.data()});
  double left = 0;
  for (size_t i = rank; i < spectrum.values.size(); ++i) {
    left += spectrum.values[i] * spectrum.values[i];
  }
  return left;
}

// A matrix whose singular values fall.
std::vector<float> Falling(size_t rows, size_t columns, uint64_t seed) {
  std::vector<float> values = Normal(rows * columns, seed);
  for (float& x : values) x *= 0.1f;
  for (size_t k = 0; k < 10; ++k) {
    const std::vector<float> u = Normal(rows, seed + 10 * k),
                             v = Normal(columns, seed + 10 * k + 5);
    const float size = 1.0f / static_cast<float>(k + 1);
    for (size_t i = 0; i < values.size(); ++i) {
      values[i] += size * u[i / columns] * v[i % columns];
    }
  }
  return values;
}

TEST_F(LevelProbeTest, RanksAreMeasuredOnTheWholeMatrix) {
  // More than the sample of a partition, so errors of a sample would show.
  constexpr size_t kRows = 200, kColumns = 300;
  tensor_.info.add_shape(kRows);
  tensor_.info.add_shape(kColumns);
  Make("lgreco:codec=powersgd:rank=4,every=10", {120 * kColumns, 80 * kColumns});
  const std::vector<float> sum = Falling(kRows, kColumns, 3);
  std::vector<float> half = sum;
  for (float& x : half) x /= 2;
  for (uint64_t round = 1; round <= 2; ++round) {
    Begin(round);
    const auto middle = half.begin() + 120 * kColumns;
    See(0, {half.begin(), middle}, Normal(120 * kColumns, 9));  // the basis is without feedback
    See(1, {middle, half.end()});
  }
  const Report report = Take();
  ASSERT_EQ(report.tensors.size(), 1u);
  const TensorReport& tensor = report.tensors[0];
  EXPECT_NEAR(tensor.input_norm2, Norm2(sum), 1e-4 * Norm2(sum));
  ASSERT_EQ(tensor.levels.size(), 7u);
  for (size_t i = 0; i < 7; ++i) {
    const size_t rank = 2 + i;
    const LevelReport& level = tensor.levels[i];
    EXPECT_EQ(level.codec, absl::StrCat("powersgd:rank=", rank));
    const double best = BestError(sum, kRows, rank);
    EXPECT_GE(level.error_norm2, best * (1 - 1e-4));
    EXPECT_LE(level.error_norm2, best * 1.05) << rank;
    // P and Q from each worker; and from one of two the payload of each partition.
    const size_t payloads = 2 * 32 + 4 * rank * (kRows + 2 * kColumns);
    EXPECT_EQ(level.payload_bytes, 4 * rank * (kRows + kColumns) + payloads / 2);
    EXPECT_GT(level.encode_ns, 0);
    EXPECT_GT(level.decode_ns, 0);
  }
}

TEST_F(LevelProbeTest, OneFactorisationTellsTheErrorsOfAllRanks) {
  const std::vector<int64_t> shape = {40, 60};
  std::vector<float> x = Falling(40, 60, 1);
  const std::vector<float> before = x;
  const auto kept = [&](const std::string& rank) {
    return MakeCodec("powersgd:seed=5,rank=" + rank).value()->phases()->KeptNorm2(shape, 7, x);
  };
  const std::vector<double> all = kept("8");
  EXPECT_EQ(x, before);
  for (size_t rank = 1; rank <= 8; ++rank) {
    const std::vector<double> alone = kept(std::to_string(rank));
    ASSERT_EQ(alone.size(), rank);
    EXPECT_NEAR(all[rank - 1], alone.back(), 1e-4 * alone.back());
  }
}

TEST_F(LevelProbeTest, LaddersAreChosenByTheGainsOfTheirCodecs) {
  Make("gravac:theta_min=10,window=100,epsilon=0.5", {50'000});
  std::vector<float> few(50'000, 0.0f);
  for (size_t i = 0; i < few.size(); i += 1000) few[i] = 5;  // topk 10 % keeps all
  const auto codec = [&] { return plan_->CodecFor(tensor_, round_, absl::ZeroDuration()).value(); };
  Begin(1);
  EXPECT_EQ(codec()->spec().ToString(), "topk:ratio=0.1") << "no gain is known";
  See(0, few);
  Begin(2);
  EXPECT_EQ(codec()->spec().name, "topk");
  for (uint64_t round = 2; round < 300; ++round) {
    See(0, std::vector<float>(50'000, 1.0f));  // topk 10 % keeps a tenth
    Begin(round + 1);
  }
  EXPECT_EQ(codec()->spec().name, "none");
}

// The probe compresses what is compressed already; the gains are those of each codec by itself.
TEST_F(LevelProbeTest, TheGainsOfALadderAreThoseOfItsCodecs) {
  for (const std::string options : {"", ",codec=topk:value=fp16", ",codec=mstopk"}) {
    Make("gravac:theta_min=10,window=100" + options, {16'000, 5000});
    const std::vector<float> a = Normal(16'000, 1), b = Normal(5000, 2);
    Begin(1);
    See(0, a);
    See(1, b);
    const auto steps = plan_->StepsFor(tensor_, 1).value();
    Begin(2);
    const wire::PolicyReport report = plan_->TakePolicyReport(2, {}).policy();
    ASSERT_EQ(report.steps_size(), static_cast<int>(steps.size()));
    ASSERT_EQ(steps.size(), 3u) << "factors 20 and 10, and raw";
    EXPECT_EQ(report.steps(2).gain(), 1);
    for (int i = 0; i < 2; ++i) {
      double sent = 0;
      for (const auto& gradient : {a, b}) {
        const Codec& codec = *steps[static_cast<size_t>(i)];
        std::vector<std::byte> payload(codec.MaxPayloadBytes(gradient.size()));
        const auto stats = codec.Encode({.gradient = gradient}, payload);
        ASSERT_TRUE(stats.ok());
        sent += stats->decoded_norm2;
      }
      const double gain = sent / (Norm2(a) + Norm2(b));
      EXPECT_NEAR(report.steps(i).gain(), gain, 1e-4 * gain) << options << " step " << i;
    }
  }
}

}  // namespace
}  // namespace slimps
