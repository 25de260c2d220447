// SPDX-License-Identifier: Apache-2.0
// Jobs whose gradients are lent on the host: the weights are those of the job that copies, bit for
// bit, and the memory is the owner's again as soon as it was promised.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <limits>
#include <string>
#include <string_view>
#include <tuple>

#include "absl/strings/str_cat.h"
#include "proto/base/awaited.h"
#include "proto/base/mutex.h"
#include "tests/cluster/gradients/gradient_memory.h"
#include "tests/cluster/in_process_cluster.h"
#include "tests/cluster/random_values.h"
#include "worker/exchange/weight_exchange.h"

namespace slimps {
namespace {

using testing::HasSubstr;

// Spoils a gradient as soon as it is given back.
class LentMemory final : public HostMemory {
 public:
  explicit LentMemory(bool until_acknowledged) : until_acknowledged_(until_acknowledged) {}
  ~LentMemory() override {
    // The last weights may come before the transport has dropped the gradients.
    MutexLock lock(&mutex_);
    const auto none = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return lent_ == 0; };
    EXPECT_TRUE(given_back_.Await(&mutex_, absl::Seconds(30), none));
  }

  void Push(KVStore& store, size_t i, const std::vector<float>& gradient) override {
    const auto memory = std::make_shared<std::vector<float>>(gradient);
    {
      MutexLock lock(&mutex_);
      ++lent_;
    }
    const auto returned = [this, memory](const absl::Status& status) {
      EXPECT_TRUE(status.ok()) << status;
      std::ranges::fill(*memory, std::numeric_limits<float>::quiet_NaN());
      MutexLock lock(&mutex_);
      --lent_;
      given_back_.NotifyAll();
    };
    ASSERT_STATUS_OK(store.PushLent(KeyOf(i),
                                    {{.values = *memory,
                                      .place = {},
                                      .returned = returned,
                                      .until_acknowledged = until_acknowledged_}},
                                    -static_cast<int>(i)));
  }

 private:
  const bool until_acknowledged_;
  Mutex mutex_;
  CondVar given_back_;
  int lent_ ABSL_GUARDED_BY(mutex_) = 0;
};

class LentGradients : public testing::TestWithParam<std::tuple<const char*, bool>> {};

TEST_P(LentGradients, GiveTheBitsOfTheJobThatCopies) {
  const auto [codec, until_acknowledged] = GetParam();
  ClusterOptions cluster;
  cluster.store.compression = codec;
  cluster.store.fixed_threshold_bytes = 300;  // one tensor of several stays below
  cluster.store.grad_scale = 0.5;
  const double momentum = std::string_view(codec).starts_with("dgc") ? 0 : 0.9;  // dgc has its own
  const std::vector<float> expected = Train(
      cluster, [](uint32_t) { return std::make_unique<HostMemory>(); }, momentum);
  ASSERT_FALSE(expected.empty());
  EXPECT_EQ(expected, Train(
                          cluster,
                          [promise = until_acknowledged](uint32_t) {
                            return std::make_unique<LentMemory>(promise);
                          },
                          momentum));
}

INSTANTIATE_TEST_SUITE_P(Codecs, LentGradients,
                         testing::Combine(testing::Values("none", "1bit", "fp16", "topk:ratio=0.1",
                                                          "dgc:ratio=0.1", "thc",
                                                          "powersgd:rank=2"),
                                          testing::Bool()),
                         [](const auto& param) {
                           const std::string spec = std::get<0>(param.param);
                           return "Of" + spec.substr(0, spec.find(':')) +
                                  (std::get<1>(param.param) ? "UntilAcknowledged" : "");
                         });

TEST(LentGradient, MayBeWrittenAgainOnceItWasGivenBack) {
  ClusterOptions cluster;
  cluster.workers = cluster.servers = 1;
  InProcessCluster(cluster).RunWorkers([](KVStore& store) {
    std::vector<float> gradient(5000), weights(5000);
    ASSERT_STATUS_OK(store.Init({{.key = "w", .shape = {5000}, .value = weights}}));
    for (int round = 1; round <= 20; ++round) {
      std::ranges::fill(gradient, static_cast<float>(round));
      Awaited returned;
      ASSERT_STATUS_OK(store.PushLent("w",
                                      {{.values = gradient,
                                        .place = {},
                                        .returned = returned.Callback(),
                                        .until_acknowledged = round % 2 == 0}},
                                      0));
      ASSERT_STATUS_OK(returned.Await());
      std::ranges::fill(gradient, 0.0f);
      ASSERT_STATUS_OK(store.Pull("w", weights, 0));
      EXPECT_EQ(weights, std::vector<float>(5000, static_cast<float>(round)));
    }
  });
}

TEST(LentGradient, ThatIsNotFiniteFailsItsEndAndTheStoreByName) {
  for (const char* codec : {"none", "1bit", "topk:ratio=0.1"}) {
    ClusterOptions cluster;
    cluster.job_fails = true;
    cluster.workers = cluster.servers = 1;
    cluster.store.compression = codec;
    cluster.store.fixed_threshold_bytes = 0;
    cluster.store.partition_bytes = 64 << 10;
    std::vector<float> gradient(40000, 1.0f);
    Awaited returned;
    InProcessCluster(cluster).RunWorkers([&](KVStore& store) {
      ASSERT_STATUS_OK(store.Init({{.key = "w", .shape = {40000}, .value = gradient}}));
      gradient[39000] = std::numeric_limits<float>::quiet_NaN();
      ASSERT_STATUS_OK(store.PushLent("w",
                                      {{.values = gradient,
                                        .place = {},
                                        .returned = returned.Callback(),
                                        .until_acknowledged = true}},
                                      0));
      EXPECT_THAT(std::string(store.Wait().message()), HasSubstr("element 39000"));
      EXPECT_FALSE(store.Push("w", gradient, 0).ok());
    });
    // Parts that were sent raw are kept until the store is closed.
    const absl::Status status = returned.Await();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << codec;
    EXPECT_THAT(std::string(status.message()), HasSubstr("push of key s:w: element 39000"));
  }
}

TEST(LentGradient, ThatIsNotFiniteIsTheStepsErrorInASynchronousExchange) {
  ClusterOptions cluster;
  cluster.job_fails = true;
  cluster.workers = cluster.servers = 1;
  cluster.store.compression = "1bit";
  cluster.store.fixed_threshold_bytes = 0;
  std::vector<std::vector<float>> weights(8, std::vector<float>(1000));  // until the store closes
  InProcessCluster(cluster).RunWorkers([&weights](KVStore& store) {
    std::vector<Parameter> parameters;
    for (std::vector<float>& values : weights) {
      const std::string name = absl::StrCat("w", parameters.size());
      parameters.push_back({.name = name, .shape = {1000}, .values = values});
    }
    const auto exchange = StartExchange(&store, parameters, Sgd(0.1, 0), {});
    ASSERT_STATUS_OK(exchange.status());
    std::vector<float> gradient(1000, 1.0f), bad = gradient;
    bad[99] = std::numeric_limits<float>::infinity();
    for (const bool is_bad : {false, true}) {
      ASSERT_STATUS_OK((*exchange)->BeginStep());
      for (size_t i = weights.size(); i-- > 0;) {
        (*exchange)->OnGradient(i, is_bad && i == 5 ? bad : gradient);
      }
      const absl::Status ended = (*exchange)->EndStep();
      if (!is_bad) {
        ASSERT_STATUS_OK(ended);
        continue;
      }
      EXPECT_EQ(ended.code(), absl::StatusCode::kInvalidArgument);
      EXPECT_THAT(std::string(ended.message()), HasSubstr("push of key s:w5: element 99 is inf"));
    }
  });
}

TEST(LentGradient, IsCopiedWhereServersHaveNoRounds) {
  ClusterOptions cluster;
  cluster.mode = wire::DIST_ASYNC;
  cluster.workers = cluster.servers = 1;
  cluster.store.compression = "1bit";
  cluster.store.fixed_threshold_bytes = 0;
  cluster.store.partition_bytes = 64 << 10;
  InProcessCluster(cluster).RunWorkers([](KVStore& store) {
    std::vector<float> gradient(40000), weights(40000, 7.0f);
    ASSERT_STATUS_OK(store.Init({{.key = "w", .shape = {40000}, .value = weights}}));
    ASSERT_STATUS_OK(store.SetOptimizer(Sgd(1, 0)));
    ASSERT_STATUS_OK(store.Barrier());
    std::ranges::fill(gradient, 1.0f);
    gradient[39000] = std::numeric_limits<float>::quiet_NaN();
    const absl::Status pushed =
        store.PushLent("w", {{.values = gradient, .place = {}, .returned = nullptr}}, 0);
    EXPECT_THAT(std::string(pushed.message()), HasSubstr("element 39000 is nan"));
    ASSERT_STATUS_OK(store.Pull("w", weights, 0));
    EXPECT_EQ(weights[0], 7.0f) << "no part of the gradient was applied";
  });
}

TEST(LentGradient, IsNotGivenBackByAPushThatIsRefused) {
  ClusterOptions cluster;
  cluster.workers = cluster.servers = 1;
  InProcessCluster(cluster).RunWorkers([](KVStore& store) {
    const std::vector<float> ones(100, 1.0f);
    ASSERT_STATUS_OK(store.Init({{.key = "w", .shape = {100}, .value = ones}}));
    const auto never = [](const absl::Status&) { ADD_FAILURE() << "was given back"; };
    EXPECT_EQ(store.PushLent("v", {{.values = ones, .place = {}, .returned = never}}, 0).code(),
              absl::StatusCode::kNotFound);
    EXPECT_EQ(store
                  .PushLent("w",
                            {{.values = std::span(ones).first(99),
                              .place = {},
                              .returned = never,
                              .until_acknowledged = true}},
                            0)
                  .code(),
              absl::StatusCode::kInvalidArgument);
  });
}

TEST(LentGradient, OfAStoreThatFailsIsGivenBackOnce) {
  ClusterOptions cluster;
  cluster.job_fails = true;
  cluster.servers = 1;
  std::atomic<int> lent{0}, returned{0};
  const std::vector<float> ones(40000, 1.0f);
  InProcessCluster(cluster).RunWorkers([&](KVStore& store) {
    ASSERT_STATUS_OK(store.Init({{.key = "w", .shape = {40000}, .value = ones}}));
    if (store.rank() != 0) {
      EXPECT_FALSE(store.Barrier().ok());
      return;
    }
    for (int round = 0; round < 20; ++round) {
      ASSERT_STATUS_OK(store.PushLent("w",
                                      {{.values = ones,
                                        .place = {},
                                        .returned = [&](const absl::Status&) { ++returned; },
                                        .until_acknowledged = true}},
                                      0));
      ++lent;
    }
    store.Abort(absl::AbortedError("enough"));
    const auto never = [](const absl::Status&) { ADD_FAILURE() << "was given back"; };
    const absl::Status pushed = store.PushLent(
        "w", {{.values = ones, .place = {}, .returned = never, .until_acknowledged = true}}, 0);
    EXPECT_THAT(std::string(pushed.message()), HasSubstr("enough"));
  });
  EXPECT_EQ(returned, lent);
}

}  // namespace
}  // namespace slimps
