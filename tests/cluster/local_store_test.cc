// SPDX-License-Identifier: Apache-2.0
// A local store and a dist_sync job of one worker get the same calls. They answer with the same
// bits and refuse the same calls with the same words.
#include "worker/local/local_store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "tests/cluster/in_process_cluster.h"
#include "tests/cluster/random_values.h"

namespace slimps {
namespace {

using ::testing::HasSubstr;

struct Case {
  std::string name;
  wire::OptimizerSpec optimizer;
  std::string compression = "none";
  float grad_scale = 1;
};

wire::OptimizerSpec Adam(wire::OptimizerSpec::Kind kind) {
  wire::OptimizerSpec spec;
  spec.set_kind(kind);
  spec.set_learning_rate(0.01);
  spec.set_beta1(0.9);
  spec.set_beta2(0.99);
  spec.set_epsilon(1e-8);
  spec.set_weight_decay(0.1);
  return spec;
}

wire::OptimizerSpec Everything() {
  wire::OptimizerSpec spec = Sgd(0.3, 0.9);
  spec.set_nesterov(true);
  spec.set_weight_decay(0.01);
  spec.set_rescale_grad(0.25);
  spec.set_clip_gradient(0.4);
  spec.mutable_schedule()->set_kind(wire::LearningRateSchedule::COSINE);
  spec.mutable_schedule()->set_total_rounds(12);
  spec.mutable_schedule()->set_warmup_rounds(2);
  return spec;
}

wire::OptimizerSpec Test() {
  wire::OptimizerSpec spec;
  spec.set_kind(wire::OptimizerSpec::TEST);
  spec.set_rescale_grad(3);
  return spec;
}

std::vector<Case> Cases() {
  return {{"Sums", {}},
          {"Test", Test()},
          {"Sgd", Sgd(0.1)},
          {"Momentum", Sgd(0.1, 0.9)},
          {"Everything", Everything(), "none", 4},
          {"Adam", Adam(wire::OptimizerSpec::ADAM)},
          {"Adamw", Adam(wire::OptimizerSpec::ADAMW)},
          {"TwoBit", Sgd(0.1, 0.9), "2bit:threshold=0.7"},
          {"OneBitScaled", Sgd(0.1), "1bit", 8},
          {"Topk", {}, "topk:ratio=0.1"},
          {"Terngrad", Sgd(0.1), "terngrad"},
          {"Drive", Sgd(0.1), "drive"},
          {"Dgc", Sgd(0.1), "dgc:ratio=0.1,warmup=2"},
          {"Majority", Sgd(0.1), "signsgd"},
          {"Half", Adam(wire::OptimizerSpec::ADAM), "fp16"}};
}

class LocalAndDistributed : public ::testing::TestWithParam<Case> {};

// Makes each call of both stores, and checks that the answers are the same.
class Twins {
 public:
  Twins(KVStore* local, KVStore* dist) : local_(*local), dist_(*dist) {}

  template <typename Call>
  absl::Status Both(const Call& call) {
    const absl::Status here = call(local_), there = call(dist_);
    EXPECT_EQ(here, there);
    return here;
  }
  void Pull(const Key& key, size_t elements) {
    std::vector<float> here(elements), there(elements);
    EXPECT_EQ(local_.Pull(key, here, 0), dist_.Pull(key, there, 0));
    EXPECT_EQ(here, there) << key.typed_name();
  }

 private:
  KVStore& local_;
  KVStore& dist_;
};

TEST_P(LocalAndDistributed, GiveTheSameAnswers) {
  const Case& given = GetParam();
  ClusterOptions options{.workers = 1, .servers = 2};
  options.store.compression = given.compression;
  options.store.fixed_threshold_bytes = 0;
  options.store.grad_scale = given.grad_scale;
  const auto local = LocalStore::Create("device", options.store);
  ASSERT_TRUE(local.ok()) << local.status();
  InProcessCluster(options).RunWorkers([&](KVStore& dist) {
    Twins both(local->get(), &dist);
    const size_t sizes[] = {3, 70, 5000};
    const char* const keys[] = {"a", "b", "c"};
    for (int k = 0; k < 3; ++k) {
      const std::vector<float> value = Random(sizes[k], k);
      const InitTensor tensor{.key = keys[k],
                              .shape = {static_cast<int64_t>(sizes[k])},
                              .value = value,
                              .dtype = k == 1 ? wire::FLOAT16 : wire::FLOAT32};
      ASSERT_STATUS_OK(both.Both([&](KVStore& store) { return store.Init({tensor}); }));
      EXPECT_FALSE(both.Both([&](KVStore& store) { return store.Init({tensor}); }).ok());
    }
    ASSERT_STATUS_OK(
        both.Both([&](KVStore& store) { return store.SetOptimizer(given.optimizer); }));
    for (const int k : {0, 1, 2}) both.Pull(keys[k], sizes[k]);
    std::mt19937 random(17);
    for (int step = 0; step < 40; ++step) {
      const int k = static_cast<int>(random() % 3);
      std::vector<float> gradient = Random(sizes[k], 100 + step);
      // A tensor declared in half precision travels in half precision, so its values must fit.
      for (float& x : gradient) x = k == 1 ? std::round(x * 64) / 64 : x;
      if (step % 10 == 9) gradient[1] = NAN;
      if (step % 10 == 8) gradient.pop_back();
      const absl::Status pushed = both.Both([&](KVStore& store) {
        return step % 10 == 7 ? store.PushNothing(keys[k]) : store.Push(keys[k], gradient, 0);
      });
      EXPECT_EQ(pushed.ok(), step % 10 < 8);
      both.Pull(keys[k], sizes[k]);
    }
    std::vector<float> none(1);
    EXPECT_FALSE(both.Both([&](KVStore& store) { return store.Push("d", none, 0); }).ok());
    EXPECT_FALSE(both.Both([&](KVStore& store) { return store.Pull("a", none, 0); }).ok());
    EXPECT_FALSE(both.Both([&](KVStore& store) { return store.Init({{.key = 7}}); }).ok());
    EXPECT_FALSE(
        both.Both([&](KVStore& store) { return store.SetGradientCompression("1bit"); }).ok());
  });
}

INSTANTIATE_TEST_SUITE_P(Rules, LocalAndDistributed, ::testing::ValuesIn(Cases()),
                         [](const auto& info) { return info.param.name; });

TEST(LocalAndDistributedInit, IsRefusedInTheSameWordsAndInitialisesNothing) {
  const ClusterOptions options{.workers = 1, .servers = 1};
  const auto local = LocalStore::Create("device", options.store);
  ASSERT_TRUE(local.ok()) << local.status();
  InProcessCluster(options).RunWorkers([&](KVStore& dist) {
    Twins both(local->get(), &dist);
    const std::vector<float> one(1);
    const auto tensor = [&one](const Key& key, const std::vector<int64_t>& shape) {
      return InitTensor{.key = key, .shape = shape, .value = one};
    };
    const auto refusal = [&](const std::vector<InitTensor>& tensors) {
      const absl::Status refused = both.Both([&](KVStore& store) { return store.Init(tensors); });
      EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument) << refused;
      return std::string(refused.message());
    };
    EXPECT_THAT(refusal({tensor("a", {1}), tensor("a", {1})}), HasSubstr("names key s:a twice"));
    EXPECT_THAT(refusal({tensor("a", {1}), tensor(5, {1})}),
                HasSubstr("key i:5 is of another kind than key s:a; a store has one kind"));
    for (const int64_t extent : {int64_t{0}, int64_t{-1}, int64_t{1} << 62}) {
      EXPECT_THAT(refusal({tensor("a", {1}), tensor("b", {7, extent})}),
                  HasSubstr("init of key s:b: shape [7, "));
    }
    ASSERT_STATUS_OK(both.Both([&](KVStore& store) { return store.Init({tensor("a", {1})}); }));
    EXPECT_THAT(refusal({tensor(5, {1})}), HasSubstr("key i:5 is of another kind than key s:a"));
  });
}

}  // namespace
}  // namespace slimps
