// SPDX-License-Identifier: Apache-2.0
// Bounded staleness (dist_ssp) in whole jobs: which worker runs ahead, how far, and what lets it go
// on. Worker i adds 1 to its own segment of the key in each round, so the weights tell how many
// rounds of each worker they hold.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <future>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "proto/base/clock.h"
#include "tests/cluster/hooked_transport.h"
#include "tests/cluster/in_process_cluster.h"

namespace slimps {
namespace {

constexpr size_t kSegment = 100;
constexpr absl::Duration kLong = absl::Seconds(50);  // only a failing test waits this long

struct Job {
  uint32_t workers = 2;
  uint32_t staleness = 0;
};

ClusterOptions OptionsOf(const Job& job) {
  ClusterOptions options{.workers = job.workers, .servers = 2, .mode = wire::DIST_SSP};
  options.store.staleness = job.staleness;
  options.store.partition_bytes =
      kSegment * sizeof(float);  // one partition for each worker's segment
  return options;
}

// One worker's calls for the key.
class Rounds {
 public:
  explicit Rounds(KVStore* store)
      : store_(*store), weights_(kSegment * store->num_workers()), gradient_(weights_.size()) {
    std::fill_n(gradient_.begin() + store->rank() * kSegment, kSegment, 1.0f);
  }

  absl::Status Begin() {
    wire::OptimizerSpec add;
    add.set_kind(wire::OptimizerSpec::TEST);
    absl::Status status = store_.Init(
        {{.key = "w", .shape = {static_cast<int64_t>(weights_.size())}, .value = weights_}});
    if (status.ok()) status = store_.SetOptimizer(add);
    if (status.ok()) status = store_.Barrier();
    return status;
  }
  absl::Status Push() { return store_.Push("w", gradient_, 0); }
  absl::Status Pull() { return store_.Pull("w", weights_, 0); }
  absl::Status PushPull() { return store_.PushPull("w", gradient_, weights_, 0); }

  // Returns how many rounds of worker `rank` the last pull holds. Fails the test if the worker's
  // segment is torn.
  int Of(uint32_t rank) const {
    const auto segment = weights_.begin() + rank * kSegment;
    EXPECT_TRUE(std::all_of(segment, segment + kSegment, [&](float x) { return x == *segment; }));
    return static_cast<int>(*segment);
  }
  int OfTheSlowest() const {
    int slowest = Of(0);
    for (uint32_t rank = 1; rank < store_.num_workers(); ++rank) {
      slowest = std::min(slowest, Of(rank));
    }
    return slowest;
  }

  // Pulls until worker `rank` has pushed `rounds`. Fails the test if it has pushed more.
  void Await(uint32_t rank, int rounds) {
    const SteadyTime deadline = MachineClock()->Now() + kLong;
    for (;;) {
      ASSERT_STATUS_OK(Pull());
      ASSERT_LE(Of(rank), rounds);
      if (Of(rank) == rounds) return;
      ASSERT_LT(MachineClock()->Now(), deadline) << "worker " << rank << " has pushed " << Of(rank);
    }
  }

 private:
  KVStore& store_;
  std::vector<float> weights_, gradient_;
};

class Staleness : public ::testing::TestWithParam<Job> {};

// The last worker pushes only when the first can go no further.
TEST_P(Staleness, WhoReadsIsAtMostTheBoundAheadOfTheSlowest) {
  const Job job = GetParam();
  const int bound = static_cast<int>(job.staleness);
  const int all = bound + 12;
  InProcessCluster cluster(OptionsOf(job));
  cluster.RunWorkers([&](KVStore& store) {
    EXPECT_EQ(store.type(), "dist_ssp");
    Rounds rounds(&store);
    ASSERT_STATUS_OK(rounds.Begin());
    const bool stopped = store.rank() == job.workers - 1;
    for (int round = 1; round <= all; ++round) {
      if (stopped) rounds.Await(0, std::min(all, round - 1 + bound + 1));
      ASSERT_STATUS_OK(rounds.PushPull());
      EXPECT_EQ(rounds.Of(store.rank()), round) << "one's own pushes are there";
      EXPECT_GE(rounds.OfTheSlowest(), round - bound) << "worker " << store.rank();
    }
    ASSERT_STATUS_OK(store.Barrier());
    ASSERT_STATUS_OK(rounds.Pull());
    EXPECT_EQ(rounds.OfTheSlowest(), all) << "nothing is lost";
  });
}

INSTANTIATE_TEST_SUITE_P(Jobs, Staleness,
                         ::testing::Values(Job{2, 0}, Job{2, 1}, Job{2, 5}, Job{3, 0}, Job{3, 2}),
                         [](const auto& info) {
                           return absl::StrCat(info.param.workers, "Workers", info.param.staleness);
                         });

TEST(BoundedStaleness, WhoOnlyPushesIsHeldBackNotFailed) {
  InProcessCluster cluster(OptionsOf({.workers = 2, .staleness = 1}));
  cluster.RunWorkers([](KVStore& store) {
    constexpr int kAll = 4;
    Rounds rounds(&store);
    ASSERT_STATUS_OK(rounds.Begin());
    for (int round = 1; round <= kAll; ++round) {
      if (store.rank() == 1) rounds.Await(0, std::min(kAll, round + 1));
      ASSERT_STATUS_OK(rounds.Push());
    }
    ASSERT_STATUS_OK(rounds.Pull());
    EXPECT_EQ(rounds.Of(store.rank()), kAll);
    EXPECT_GE(rounds.OfTheSlowest(), kAll - 1);
  });
}

TEST(BoundedStaleness, WhoLeavesHoldsNobody) {
  InProcessCluster cluster(OptionsOf({.workers = 3, .staleness = 1}));
  cluster.RunWorkers([](KVStore& store) {
    Rounds rounds(&store);
    ASSERT_STATUS_OK(rounds.Begin());
    const int all = store.rank() == 1 ? 2 : 10;
    for (int round = 1; round <= all; ++round) ASSERT_STATUS_OK(rounds.PushPull());
    if (store.rank() == 1) {
      // Both other workers wait for its third round, or are about to.
      rounds.Await(0, 4);
      rounds.Await(2, 4);
      ASSERT_STATUS_OK(store.Leave());
    }
    ASSERT_STATUS_OK(store.Barrier());
    ASSERT_STATUS_OK(rounds.Pull());
    EXPECT_EQ(rounds.Of(0), 10);
    EXPECT_EQ(rounds.Of(1), 2);
  });
}

TEST(BoundedStaleness, WhoFailsLetsTheOthersKnowInsteadOfWaiting) {
  ClusterOptions options = OptionsOf({.workers = 2, .staleness = 2});
  options.job_fails = true;
  InProcessCluster(options).RunWorkers([](KVStore& store) {
    Rounds rounds(&store);
    ASSERT_STATUS_OK(rounds.Begin());
    if (store.rank() == 1) {
      rounds.Await(0, 3);  // worker 0 waits for round 1 of this worker
      store.Abort(absl::DataLossError("its disk is full"));
      return;
    }
    absl::Status status;
    int finished = 0;
    while (status.ok() && finished < 10) {
      status = rounds.PushPull();
      finished += status.ok();
    }
    EXPECT_EQ(finished, 2);
    EXPECT_NE(status.message().find("its disk is full"), std::string::npos) << status;
    // A server may have told this worker before the scheduler did.
    const SteadyTime deadline = MachineClock()->Now() + kLong;
    while (store.Wait().ok()) ASSERT_LT(MachineClock()->Now(), deadline);
  });
}

TEST(BoundedStaleness, PushesNeedAnOptimizer) {
  ClusterOptions options = OptionsOf({.workers = 1});
  options.job_fails = true;
  InProcessCluster(options).RunWorkers([](KVStore& store) {
    EXPECT_EQ(store.SetOptimizer({}).code(), absl::StatusCode::kInvalidArgument);
    std::vector<float> w(4);
    ASSERT_STATUS_OK(store.Init({{.key = "w", .shape = {4}, .value = w}}));
    const absl::Status refused = store.PushPull("w", w, w, 0);
    EXPECT_EQ(refused.code(), absl::StatusCode::kFailedPrecondition) << refused;
    EXPECT_NE(refused.message().find("dist_ssp needs an optimizer"), std::string::npos) << refused;
  });
}

TEST(BoundedStaleness, UpdatersAreForLocalStores) {
  InProcessCluster(OptionsOf({.workers = 1})).RunWorkers([](KVStore& store) {
    const absl::Status refused =
        store.SetUpdater([](const Key&, std::span<const float>, std::span<float>) {});
    EXPECT_EQ(refused.code(), absl::StatusCode::kUnimplemented);
    EXPECT_NE(refused.message().find("dist_ssp"), std::string::npos) << refused;
  });
}

TEST(BoundedStaleness, DevicesAreSummedIntoOnePush) {
  InProcessCluster(OptionsOf({.workers = 1})).RunWorkers([](KVStore& store) {
    Rounds rounds(&store);
    ASSERT_STATUS_OK(rounds.Begin());
    const std::vector<float> one(kSegment, 1.0f), two(kSegment, 2.0f), shorter(kSegment - 1);
    const std::vector<std::span<const float>> devices = {one, two, two};
    ASSERT_STATUS_OK(store.PushSum("w", devices, 0));
    ASSERT_STATUS_OK(rounds.Pull());
    EXPECT_EQ(rounds.Of(0), 5);
    const std::vector<std::span<const float>> uneven = {one, shorter};
    EXPECT_EQ(store.PushSum("w", uneven, 0),
              absl::InvalidArgumentError(
                  "push of key s:w: device 1 has 99 elements, expected 100 as device 0 has"));
    EXPECT_EQ(store.PushSum("w", {}, 0).code(), absl::StatusCode::kInvalidArgument);
  });
}

TEST(BoundedStaleness, WhatNeedsRoundsInCommonIsRefused) {
  const auto refusal = [](const KVStoreOptions& store) {
    KVStoreOptions own = store;
    own.scheduler_address = "inproc://nobody";
    const auto created =
        DistStore::Create(wire::DIST_SSP, own,
                          std::make_unique<InProcessTransport>(std::make_shared<InProcessNetwork>(),
                                                               TransportOptions{}));
    return created.status();
  };
  KVStoreOptions pulls;
  pulls.pull_compression = "1bit";
  EXPECT_EQ(refusal(pulls).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_NE(refusal(pulls).message().find("pull compression 1bit with dist_ssp"), std::string::npos)
      << refusal(pulls);
}

// PullAsync returns before this worker's push has left. The answer includes that push.
TEST(WithoutRounds, AskingForAPullDoesNotWaitForThePushes) {
  for (const wire::StoreMode mode : {wire::DIST_ASYNC, wire::DIST_SSP}) {
    std::promise<void> released;
    std::promise<absl::Status> answered;
    const std::shared_future<void> release = released.get_future().share();
    ClusterOptions options{.workers = 1, .servers = 1, .mode = mode};
    options.wrap = Hooked({[release](const Message& message) {
      if (message.header.has_push()) release.wait();
      return absl::OkStatus();
    }});
    InProcessCluster cluster(options);
    cluster.RunWorkers([&](KVStore& store) {
      Rounds rounds(&store);
      const absl::Status begun = rounds.Begin();
      const absl::Status pushed = begun.ok() ? rounds.Push() : begun;
      if (!pushed.ok()) released.set_value();
      ASSERT_STATUS_OK(pushed);
      std::vector<float> weights(kSegment);
      std::future<absl::Status> answer = answered.get_future();
      store.PullAsync("w", weights, 0,
                      [&](const absl::Status& status) { answered.set_value(status); });
      std::vector<int64_t> rows;
      std::vector<float> values;
      const std::vector<int64_t> first = {0};
      std::future<absl::Status> pulled_rows = std::async(
          std::launch::async, [&] { return store.PullRows("w", first, &rows, &values, 0); });
      EXPECT_NE(pulled_rows.wait_for(std::chrono::milliseconds(100)), std::future_status::ready);
      EXPECT_NE(answer.wait_for(std::chrono::seconds(0)), std::future_status::ready);
      released.set_value();
      ASSERT_STATUS_OK(pulled_rows.get());
      EXPECT_EQ(values, std::vector<float>(1, 1));
      ASSERT_EQ(answer.wait_for(std::chrono::seconds(50)), std::future_status::ready);
      ASSERT_STATUS_OK(answer.get());
      EXPECT_EQ(weights, std::vector<float>(kSegment, 1));
    });
  }
}

// The aborting thread may hold a lock that `done` takes too, so another thread must call `done`.
TEST(WithoutRounds, APullThatWaitsHearsOfAnAbortFromAnotherThread) {
  std::promise<void> released;
  ClusterOptions options{.job_fails = true, .workers = 1, .servers = 1, .mode = wire::DIST_ASYNC};
  options.wrap = Hooked({[release = released.get_future().share()](const Message& message) {
    if (message.header.has_push()) release.wait();
    return absl::OkStatus();
  }});
  InProcessCluster(options).RunWorkers([&](KVStore& store) {
    Rounds rounds(&store);
    EXPECT_TRUE(rounds.Begin().ok());
    EXPECT_TRUE(rounds.Push().ok());
    std::vector<float> weights(kSegment);
    std::promise<std::pair<absl::Status, std::thread::id>> answered;
    store.PullAsync("w", weights, 0, [&](const absl::Status& status) {
      answered.set_value({status, std::this_thread::get_id()});
    });
    store.Abort(absl::DataLossError("its disk is full"));
    const auto [status, teller] = answered.get_future().get();
    EXPECT_EQ(status, absl::DataLossError("its disk is full"));
    EXPECT_NE(teller, std::this_thread::get_id());
    released.set_value();
  });
}

}  // namespace
}  // namespace slimps
