// SPDX-License-Identifier: Apache-2.0
// The lines about waits of a job that runs: who has not come to a sum, whose report a decision
// lacks, which server lives and gets nothing done.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/notification.h"
#include "proto/base/clock.h"
#include "proto/base/mutex.h"
#include "proto/slimps.pb.h"
#include "scheduler/watch/job_view.h"
#include "scheduler/watch/job_watch.h"
#include "tests/cluster/hooked_transport.h"
#include "tests/cluster/in_process_cluster.h"
#include "tests/proto/base/wait_until.h"
#include "watch/metrics.h"
#include "watch/node_report.pb.h"

namespace slimps {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::MatchesRegex;

constexpr size_t kElements = 20000;  // the shard thread handles what is so large, and no other

// Looks at a job as its scheduler does, at times that are as far ahead as the test says.
class Onlooker final {
 public:
  explicit Onlooker(InProcessCluster* cluster) : cluster_(*cluster) {}

  // REQUIRES: the store stays open while anybody looks.
  void Add(KVStore* store) {
    MutexLock lock(&mutex_);
    stores_[store->rank()] = store;
  }

  JobView View() const { return cluster_.scheduler().Observe({}).view; }
  watch::NodeReport ReportOf(uint32_t worker) const {
    MutexLock lock(&mutex_);
    watch::NodeReport report;
    EXPECT_TRUE(report.ParseFromString(stores_.at(worker)->Report(/*details=*/false)));
    return report;
  }

  // Takes all nodes' reports as if they came `later`.
  void TakeReports(absl::Duration later) {
    const SteadyTime now = MachineClock()->Now() + later;
    watch_.TakeReport({wire::SERVER, 0}, cluster_.server(0).Report().SerializeAsString(), now);
    for (const uint32_t rank : {0u, 1u}) {
      watch_.TakeReport({wire::WORKER, rank}, ReportOf(rank).SerializeAsString(), now);
    }
  }
  // Returns the lines that the log gets `later`.
  std::vector<std::string> Look(absl::Duration later) {
    return watch_.Observe(View(), {}, MachineClock()->Now() + later);
  }

 private:
  InProcessCluster& cluster_;
  JobWatch watch_{{.num_workers = 2,
                   .num_servers = 1,
                   .heartbeat_interval = absl::Hours(1)},  // however slow the machine is
                  MachineClock()->Now()};
  mutable Mutex mutex_;
  std::map<uint32_t, KVStore*> stores_ ABSL_GUARDED_BY(mutex_);  // by rank
};

void Init(KVStore& store) {
  const std::vector<float> zeros(kElements);
  ASSERT_STATUS_OK(store.Init({{.key = "w", .shape = {kElements}, .value = zeros}}));
}

void Train(KVStore& store, int rounds) {
  std::vector<float> values(kElements, 1);
  for (int round = 0; round < rounds; ++round) {
    ASSERT_STATUS_OK(store.Push("w", values, 0));
    ASSERT_STATUS_OK(store.Pull("w", values, 0));
  }
  ASSERT_STATUS_OK(store.Wait());
}

TEST(StallLines, ASumNamesTheWorkerThatHasNotComeUntilItComes) {
  InProcessCluster cluster({.servers = 1});
  Onlooker onlooker(&cluster);
  cluster.RunWorkers([&](KVStore& store) {
    onlooker.Add(&store);
    Init(store);
    if (store.rank() == 1) {
      ASSERT_TRUE(WaitUntil([&] { return !onlooker.View().barriers.empty(); }));
      onlooker.TakeReports(absl::ZeroDuration());
      EXPECT_THAT(onlooker.Look(absl::ZeroDuration()), IsEmpty());
      EXPECT_THAT(onlooker.Look(absl::Seconds(11)),
                  ElementsAre(MatchesRegex("sum \"kvstore/sum\" for a sum over all workers waits "
                                           "[0-9]+ s for worker 1; worker 1: last call init "
                                           "[0-9]+ s ago")));
    }
    EXPECT_TRUE(store.AllReduceSum({1}).ok());
    if (store.rank() == 1) {
      onlooker.TakeReports(absl::Seconds(12));
      EXPECT_THAT(onlooker.Look(absl::Seconds(12)),
                  ElementsAre(MatchesRegex("sum \"kvstore/sum\" for a sum over all workers goes on "
                                           "after [0-9]+ s")));
    }
    ASSERT_STATUS_OK(store.Barrier());
  });
}

TEST(StallLines, ADecisionNamesTheWorkerWhoseReportLacksUntilItCame) {
  constexpr int kPreSteps = 4;
  ClusterOptions options{.servers = 1};
  options.store.compression = "1bit";
  options.store.pre_steps = kPreSteps;
  InProcessCluster cluster(options);
  Onlooker onlooker(&cluster);
  cluster.RunWorkers([&](KVStore& store) {
    onlooker.Add(&store);
    Init(store);
    Train(store, kPreSteps);
    if (store.rank() == 1) {
      ASSERT_TRUE(WaitUntil([&] { return !onlooker.View().unreported.empty(); }));
      EXPECT_THAT(onlooker.Look(absl::ZeroDuration()), IsEmpty());
      onlooker.TakeReports(absl::Seconds(11));  // so the open round is young
      EXPECT_THAT(onlooker.Look(absl::Seconds(11)),
                  ElementsAre(MatchesRegex("the decision how to compress waits [0-9]+ s for worker "
                                           "1; worker 1: last call wait [0-9.]+ s ago")));
    }
    Train(store, 1);
    if (store.rank() == 1) {
      ASSERT_TRUE(WaitUntil([&] { return onlooker.View().decision.has_value(); }));
      onlooker.TakeReports(absl::Seconds(12));
      EXPECT_THAT(onlooker.Look(absl::Seconds(12)),
                  ElementsAre(MatchesRegex("the decision how to compress goes on after [0-9]+ s")));
    }
    ASSERT_STATUS_OK(store.Barrier());
  });
}

// A server's shard thread that stands in its first answer to a pull, as if it swapped.
class Swapping final {
 public:
  SendHook Hook() {
    return [this](const Message& message) {
      if (message.header.has_heartbeat() && stands_.HasBeenNotified()) ++heartbeats_;
      if (!message.header.has_pull_reply() || stands_.HasBeenNotified()) return absl::OkStatus();
      stands_.Notify();
      EXPECT_TRUE(ends_.WaitForNotificationWithTimeout(absl::Minutes(2)));  // if the test fails
      return absl::OkStatus();
    };
  }
  bool AwaitBegin() { return stands_.WaitForNotificationWithTimeout(absl::Minutes(1)); }
  void End() { ends_.Notify(); }
  // Returns how many heartbeats the server has sent meanwhile.
  int heartbeats() const { return heartbeats_.load(std::memory_order_relaxed); }

 private:
  absl::Notification stands_, ends_;
  std::atomic<int> heartbeats_ = 0;  // publishes nothing but itself
};

TEST(StallLines, AServerThatSwapsIsNamedWhileItsHeartbeatsGoOn) {
  Swapping swapping;
  ClusterOptions options{.servers = 1};
  options.scheduler.heartbeat_interval = absl::Milliseconds(50);
  options.wrap_server = [&](std::unique_ptr<Transport> inner) -> std::unique_ptr<Transport> {
    return std::make_unique<HookedTransport>(std::move(inner), swapping.Hook());
  };
  InProcessCluster cluster(options);
  Onlooker onlooker(&cluster);
  cluster.RunWorkers([&](KVStore& store) {
    onlooker.Add(&store);
    Init(store);
    std::vector<float> values(kElements, 1);
    ASSERT_STATUS_OK(store.Push("w", values, 0));
    if (store.rank() == 0) {
      ASSERT_STATUS_OK(store.Pull("w", values, 0));
    } else {
      ASSERT_TRUE(swapping.AwaitBegin());
      absl::Notification pulled;
      store.PullAsync("w", values, 0, [&](const absl::Status& status) {
        EXPECT_TRUE(status.ok()) << status;
        pulled.Notify();
      });
      EXPECT_TRUE(WaitUntil([&] {
        return swapping.heartbeats() >= 2 &&
               SumOf(cluster.server(0).Report(), Metric::kQueueDepth) > 0;
      }));
      onlooker.TakeReports(absl::ZeroDuration());
      EXPECT_THAT(onlooker.Look(absl::Seconds(11)),
                  ElementsAre(MatchesRegex("worker 0 is in pull for [0-9]+ s; server 0 has [0-9]+ "
                                           "entr(y|ies) queued")));
      swapping.End();
      pulled.WaitForNotification();
      EXPECT_TRUE(WaitUntil([&] { return onlooker.ReportOf(0).activity().call() == "barrier"; }));
      onlooker.TakeReports(absl::Seconds(12));
      EXPECT_THAT(onlooker.Look(absl::Seconds(12)),
                  ElementsAre(MatchesRegex("worker 0 goes on after [0-9]+ s")));
    }
    ASSERT_STATUS_OK(store.Barrier());
  });
}

}  // namespace
}  // namespace slimps
