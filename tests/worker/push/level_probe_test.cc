// SPDX-License-Identifier: Apache-2.0
#include "worker/push/level_probe.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <vector>

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
    probe_->BeginRound(round, plan_.get());
  }
  void See(size_t partition, const std::vector<float>& gradient,
           const std::vector<float>& residual = {}) {
    const std::shared_ptr<HostBuffer> buffer = device_->AllocateHost(gradient.size()).value();
    std::ranges::copy(gradient, buffer->floats().begin());
    const std::vector<float> before = residual;
    const absl::Status seen = probe_->See(
        {.tensor = &tensor_, .partition = partition, .round = round_, .grad_buf = buffer}, residual,
        plan_.get());
    ASSERT_TRUE(seen.ok()) << seen;
    EXPECT_TRUE(std::ranges::equal(buffer->floats(), gradient)) << "a probe commits nothing";
    EXPECT_EQ(residual, before);
  }
  Report Take() { return probe_->Take(plan_.get()).value(); }

  const std::unique_ptr<Device> device_ = MakeHostDevice();
  TensorPlan tensor_{.key = Key("w"), .info = {}, .elements = 0, .partitions = {}};
  std::unique_ptr<CompressionPlan> plan_;
  std::unique_ptr<LevelProbe> probe_;
  uint64_t round_ = 0;
};

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

TEST_F(LevelProbeTest, LaddersAreChosenByTheGainsOfTheirCodecs) {
  Make("gravac:theta_min=10,window=100,epsilon=0.5", {50'000});
  std::vector<float> few(50'000, 0.0f);
  for (size_t i = 0; i < few.size(); i += 1000) few[i] = 5;  // topk 10 % keeps all
  const auto codec = [&] { return plan_->CodecFor(tensor_, round_, absl::ZeroDuration()).value(); };
  Begin(1);
  EXPECT_EQ(codec()->spec().name, "none") << "no gain is known";
  See(0, few);
  Begin(2);
  EXPECT_EQ(codec()->spec().name, "topk");
  for (uint64_t round = 2; round < 300; ++round) {
    See(0, std::vector<float>(50'000, 1.0f));  // topk 10 % keeps a tenth
    Begin(round + 1);
  }
  EXPECT_EQ(codec()->spec().name, "none");
}

}  // namespace
}  // namespace slimps
