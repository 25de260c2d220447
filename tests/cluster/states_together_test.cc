// SPDX-License-Identifier: Apache-2.0
// Workers save and load optimizer states together. Pushes right before are in, pushes right after
// are not, however slow the other workers are. A worker that cannot go on says so.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "proto/base/mutex.h"
#include "tests/cluster/hooked_transport.h"
#include "tests/cluster/in_process_cluster.h"
#include "tests/cluster/random_values.h"
#include "worker/saved/optimizer_states.h"

namespace slimps {
namespace {

using ::testing::HasSubstr;

constexpr size_t kElements = 60;

bool IsStatePull(const Message& message) {
  return message.header.pull().items_size() > 0 &&
         message.header.pull().items(0).state_tensor() > 0;
}
bool IsStatePut(const Message& message) {
  return message.header.init().items_size() > 0 && message.header.init().items(0).has_state();
}
bool IsPush(const Message& message) { return message.header.has_push(); }

// Delays the chosen messages. In that time a worker that fails to wait gets far ahead. A worker
// that waits is not affected.
SendHook Slow(bool (*which)(const Message&), absl::Duration by = absl::Milliseconds(30)) {
  return [which, by](const Message& message) {
    if (which(message)) absl::SleepFor(by);
    return absl::OkStatus();
  };
}

ClusterOptions Cluster(wire::StoreMode mode, std::vector<SendHook> hooks) {
  ClusterOptions options{
      .workers = 2, .servers = 2, .mode = mode, .wrap = Hooked(std::move(hooks))};
  options.store.partition_bytes = 100;
  return options;
}

void Begin(KVStore& store, int keys = 1) {
  for (int key = 0; key < keys; ++key) {
    ASSERT_STATUS_OK(
        store.Init({{.key = key, .shape = {kElements}, .value = std::vector<float>(kElements)}}));
  }
  ASSERT_STATUS_OK(store.SetOptimizer(Sgd(0.1, 0.9)));
  ASSERT_STATUS_OK(store.Barrier());
}

void PushTo(KVStore& store, int key = 0) {
  ASSERT_STATUS_OK(store.Push(key, Random(kElements, 1 + store.rank()), 0));
}

uint64_t UpdatesIn(const absl::StatusOr<std::string>& content, const std::string& key = "i:0") {
  if (!content.ok()) {
    ADD_FAILURE() << content.status();
    return 0;
  }
  return ParseOptimizerStates(*content)->keys.at(key).updates;
}

TEST(StatesTogether, WhatIsPushedRightBeforeASavingIsInItAndWhatIsPushedRightAfterIsNot) {
  for (const bool slow_pushes : {true, false}) {
    InProcessCluster cluster(Cluster(wire::DIST_ASYNC, {Slow(slow_pushes ? IsPush : IsStatePull)}));
    cluster.RunWorkers([&](KVStore& store) {
      Begin(store);
      for (uint64_t round = 1; round <= 3; ++round) {
        PushTo(store);
        EXPECT_EQ(UpdatesIn(store.SaveOptimizerStates()), 2 * round) << "worker " << store.rank();
      }
    });
  }
}

TEST(StatesTogether, WhatIsPushedRightBeforeALoadingIsReplacedAndWhatIsPushedRightAfterStepsIt) {
  for (const bool slow_pushes : {true, false}) {
    InProcessCluster cluster(
        Cluster(wire::DIST_ASYNC, slow_pushes ? std::vector<SendHook>{nullptr, Slow(IsPush)}
                                              : std::vector<SendHook>{Slow(IsStatePut)}));
    cluster.RunWorkers([&](KVStore& store) {
      Begin(store);
      PushTo(store);
      const auto saved = store.SaveOptimizerStates();
      for (int loading = 1; loading <= 3; ++loading) {
        PushTo(store);
        ASSERT_STATUS_OK(store.LoadOptimizerStates(*saved));
        EXPECT_EQ(UpdatesIn(store.SaveOptimizerStates()), 2u) << "worker " << store.rank();
        ASSERT_STATUS_OK(store.LoadOptimizerStates(*saved));
        if (store.rank() == 1) PushTo(store);
        EXPECT_EQ(UpdatesIn(store.SaveOptimizerStates()), 3u) << "worker " << store.rank();
      }
    });
  }
}

TEST(StatesTogether, UnderBoundedStalenessNobodyWaitsForPushes) {
  ClusterOptions options = Cluster(wire::DIST_SSP, {});
  options.store.staleness = 1;
  InProcessCluster cluster(options);
  cluster.RunWorkers([&](KVStore& store) {
    Begin(store);
    if (store.rank() == 0) PushTo(store), PushTo(store);
    EXPECT_EQ(UpdatesIn(store.SaveOptimizerStates()), 2u);
    if (store.rank() == 1) PushTo(store), PushTo(store);
  });
}

TEST(StatesTogether, AfterAWorkerHasLeftItGetsWhatTheOthersGet) {
  InProcessCluster cluster(Cluster(wire::DIST_SYNC, {}));
  cluster.RunWorkers([&](KVStore& store) {
    Begin(store);
    PushTo(store);
    if (store.rank() == 1) ASSERT_STATUS_OK(store.Leave());
    if (store.rank() == 0) PushTo(store), PushTo(store);
    EXPECT_EQ(UpdatesIn(store.SaveOptimizerStates()), 3u) << "worker " << store.rank();
  });
}

// The links are so slow that all tensors together take longer than the timeout, but no single
// tensor does.
TEST(StatesTogether, NobodyGivesUpWhileTensorsGoOnComing) {
  constexpr int kKeys = 8;
  const auto slow = [](const Message& message) {
    return IsStatePull(message) || IsStatePut(message);
  };
  ClusterOptions options = Cluster(wire::DIST_SYNC, {Slow(+slow, absl::Milliseconds(500))});
  options.servers = 1;
  options.store.partition_bytes = kElements * sizeof(float);
  options.store.timeout = absl::Seconds(3);
  InProcessCluster cluster(options);
  cluster.RunWorkers([&](KVStore& store) {
    Begin(store, kKeys);
    for (int key = 0; key < kKeys; ++key) PushTo(store, key);
    const auto saved = store.SaveOptimizerStates();
    EXPECT_EQ(UpdatesIn(saved, absl::StrCat("i:", kKeys - 1)), 1u);
    EXPECT_EQ(store.LoadOptimizerStates(*saved), absl::OkStatus());
  });
}

// ---- a server that is gone ----------------------------------------------------------------------

void ExpectTheJobsEnd(bool (*lost)(const Message&),
                      const std::function<absl::Status(KVStore&)>& call) {
  ClusterOptions options =
      Cluster(wire::DIST_ASYNC, {[lost](const Message& message) {
                return lost(message) ? absl::UnavailableError("server is gone") : absl::OkStatus();
              }});
  options.job_fails = true;
  Mutex mutex;
  CondVar changed;
  bool done = false;
  InProcessCluster cluster(options);
  cluster.RunWorkers([&](KVStore& store) {
    Begin(store);
    if (store.rank() == 0) {
      const absl::Status status = call(store);
      EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable) << status;
      EXPECT_THAT(std::string(status.message()), HasSubstr("key i:0 partition"));
      EXPECT_EQ(store.Push(0, std::vector<float>(kElements), 0), status);
      MutexLock lock(&mutex);
      done = true;
      changed.NotifyAll();
      return;
    }
    (void)store.AllReduceSumFor("saving optimizer states", {0});  // the first step of saving
    MutexLock lock(&mutex);
    EXPECT_TRUE(changed.Await(&mutex, absl::Seconds(30), [&] { return done; }));
    store.Abort(absl::AbortedError("so that nobody waits"));
  });
}

TEST(StatesTogether, AServerThatIsGoneEndsTheJob) {
  ExpectTheJobsEnd(IsStatePull,
                   [](KVStore& store) { return store.SaveOptimizerStates().status(); });
  ExpectTheJobsEnd(IsStatePull, [](KVStore& store) {
    EXPECT_TRUE(store.AllReduceSumFor("saving optimizer states", {0}).ok());
    return store.LoadOptimizerStates(BuildOptimizerStates(
        {.kind = wire::OptimizerSpec::SGD,
         .tensors = 1,
         .keys = {{"i:0", {.elements = kElements, .tensors = {std::vector<float>(kElements)}}}}}));
  });
  const auto is_pull = [](const Message& message) { return message.header.has_pull(); };
  ExpectTheJobsEnd(+is_pull, [](KVStore& store) {
    EXPECT_TRUE(store.AllReduceSumFor("saving optimizer states", {0}).ok());
    std::vector<int64_t> rows;
    std::vector<float> values;
    return store.PullRows(0, std::vector<int64_t>{3}, &rows, &values, 0);
  });
}

}  // namespace
}  // namespace slimps
