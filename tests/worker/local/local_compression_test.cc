// SPDX-License-Identifier: Apache-2.0
// Gradient compression between the devices of one process.
#include <map>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/worker/local/local_store_fixture.h"

namespace slimps {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(LocalCompression, IsForDevicesAlone) {
  const auto store = Make("local");
  const absl::Status refused = store->SetGradientCompression({{"type", "2bit"}});
  EXPECT_EQ(refused.code(), absl::StatusCode::kUnimplemented);
  EXPECT_THAT(std::string(refused.message()),
              HasSubstr("gradient compression is not supported for this type of kvstore: local"));
  EXPECT_EQ(store->SetGradientCompression("1bit"), refused);
  EXPECT_EQ(KVStore::Create("local", {.compression = "1bit"}).status(), refused);
  EXPECT_EQ(KVStore::Create("device", {.compression = "9bit"}).status().code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(KVStore::Create("device", {.pull_compression = "fp16"}).status().code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(KVStore::Create("lokal", {}).status().message()),
              HasSubstr("expected local, device, dist_sync, dist_device_sync, dist_async or"));
}

// MXNet's 2bit sends +t, -t or 0 of gradient plus residual. Both bounds count as reached. Each key
// has a residual per device.
TEST(LocalCompression, EachDeviceHasAResidualOfItsOwnPerKey) {
  const auto store = Make("device");
  ASSERT_TRUE(store->SetGradientCompression({{"type", "2bit"}, {"threshold", "0.5"}}).ok());
  const std::vector<Key> keys = {"a", "b"};
  for (const Key& key : keys) ASSERT_TRUE(InitKey(*store, key, Values(3)).ok());
  std::mt19937 random(7);
  std::map<std::pair<size_t, size_t>, Values> residuals;
  for (int step = 0; step < 200; ++step) {
    const size_t key = random() % keys.size();
    const size_t devices = 1 + random() % 3;
    std::vector<Values> gradients(devices, Values(3));
    Values expected(3);
    for (size_t device = 0; device < devices; ++device) {
      Values& residual = residuals.try_emplace({key, device}, Values(3)).first->second;
      for (size_t k = 0; k < 3; ++k) {
        gradients[device][k] = static_cast<float>(static_cast<int>(random() % 9) - 4) / 8;
        const float x = gradients[device][k] + residual[k];
        const float sent = x >= 0.5f ? 0.5f : x <= -0.5f ? -0.5f : 0.0f;
        residual[k] = x - sent;
        expected[k] += sent;
      }
    }
    ASSERT_TRUE(
        store->PushSum(keys[key], DeviceArrays(gradients.begin(), gradients.end()), 0).ok());
    ASSERT_EQ(PullOf(*store, keys[key], 3), expected) << "step " << step;
  }
  EXPECT_GT(store->totals().pushed.elements, 0);
  EXPECT_EQ(store->totals().pushed.elements,
            store->push_counts("a").elements + store->push_counts("b").elements);
  EXPECT_GT(store->push_counts("a").error_norm2, 0);
  EXPECT_EQ(store->push_counts("c").elements, 0);
}

TEST(LocalCompression, WhatIsRefusedLeavesEveryResidualAsItWas) {
  const auto store = Make("device", {.compression = "2bit:threshold=1"});
  ASSERT_TRUE(InitKey(*store, "w", {0}).ok());
  const Values part = {0.5f}, bad = {kInfinity};
  const absl::Status refused = store->PushSum("w", DeviceArrays{part, bad}, 0);
  EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(refused.message()), HasSubstr("push of key s:w: element 0 is inf"));
  ASSERT_TRUE(store->PushSum("w", DeviceArrays{part, part}, 0).ok());
  EXPECT_THAT(PullOf(*store, "w", 1), ElementsAre(0)) << "0.5 each, once";
  ASSERT_TRUE(store->PushSum("w", DeviceArrays{part, part}, 0).ok());
  EXPECT_THAT(PullOf(*store, "w", 1), ElementsAre(2));
  EXPECT_EQ(store->SetGradientCompression("1bit").code(), absl::StatusCode::kFailedPrecondition);
}

TEST(LocalCompression, SmallTensorsGoAsTheyAreWhereAThresholdIsGiven) {
  const auto store =
      Make("device", {.compression = "2bit:threshold=1", .fixed_threshold_bytes = 8});
  ASSERT_TRUE(InitKey(*store, "small", {0}).ok());
  ASSERT_TRUE(InitKey(*store, "large", {0, 0}).ok());
  ASSERT_TRUE(store->Push("small", Values{0.25f}, 0).ok());
  ASSERT_TRUE(store->Push("large", Values{0.25f, 1}, 0).ok());
  EXPECT_THAT(PullOf(*store, "small", 1), ElementsAre(0.25f));
  EXPECT_THAT(PullOf(*store, "large", 2), ElementsAre(0, 1));
}

TEST(LocalCompression, DevicesVoteWhereTheCodecDoes) {
  const auto store = Make("device");
  ASSERT_TRUE(store->SetGradientCompression("signsgd").ok());
  ASSERT_TRUE(InitKey(*store, "w", {0, 0}).ok());
  const Values a = {5, 1}, b = {-1, 1}, c = {-1, -7};
  ASSERT_TRUE(store->PushSum("w", DeviceArrays{a, b, c}, 0).ok());
  EXPECT_THAT(PullOf(*store, "w", 2), ElementsAre(-1, 1));
}

TEST(LocalCompression, MomentumTwiceIsRefusedInEitherOrder) {
  wire::OptimizerSpec momentum = Spec(wire::OptimizerSpec::SGD, 1);
  momentum.set_momentum(0.9);
  const auto store = Make("device");
  ASSERT_TRUE(store->SetOptimizer(momentum).ok());
  EXPECT_EQ(store->SetGradientCompression("dgc").code(), absl::StatusCode::kInvalidArgument);
  ASSERT_TRUE(store->SetOptimizer(Spec(wire::OptimizerSpec::SGD, 1)).ok());
  ASSERT_TRUE(store->SetGradientCompression("dgc").ok());
  EXPECT_EQ(store->SetOptimizer(momentum).code(), absl::StatusCode::kInvalidArgument);
  ASSERT_TRUE(store->SetGradientCompression("none").ok());
  EXPECT_TRUE(store->SetOptimizer(momentum).ok());
}

}  // namespace
}  // namespace slimps
