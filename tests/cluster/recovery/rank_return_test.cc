// SPDX-License-Identifier: Apache-2.0
// A worker that goes silent while the job runs, and another process that takes its rank.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "tests/cluster/hooked_transport.h"
#include "tests/cluster/in_process_cluster.h"
#include "tests/server/saved/snapshot_test_util.h"

namespace slimps {
namespace {

using ::testing::HasSubstr;
using Values = std::vector<float>;

wire::OptimizerSpec Adding(double scale) {
  wire::OptimizerSpec spec;
  spec.set_kind(wire::OptimizerSpec::TEST);
  spec.set_rescale_grad(scale);
  return spec;
}

// Worker r pushes r + 1 to each element, and weights begin with 0.
class RankReturnTest : public testing::TestWithParam<uint32_t> {
 protected:
  uint32_t dies() const { return GetParam(); }

  virtual ClusterOptions Options() {
    ClusterOptions options{.workers = 2, .servers = 1};
    options.store.timeout = absl::Seconds(12);
    options.scheduler.heartbeat_interval = absl::Milliseconds(50);
    options.scheduler.heartbeat_timeout = absl::Seconds(2);
    options.scheduler.restart_timeout = absl::Seconds(10);
    options.wrap = [this](uint32_t worker,
                          std::unique_ptr<Transport> inner) -> std::unique_ptr<Transport> {
      if (worker != dies() || processes_.fetch_add(1) > 0) return inner;
      return std::make_unique<HookedTransport>(std::move(inner), [this](const Message&) {
        return dead_.load() ? absl::ResourceExhaustedError("dead") : absl::OkStatus();
      });
    };
    return options;
  }

  // What each process of a worker calls first.
  static void Start(double scale, KVStore* store) {
    const Values zeros(3, 0);
    ASSERT_STATUS_OK(store->Init({{.key = Key("a"), .shape = {3}, .value = zeros},
                                  {.key = Key("b"), .shape = {3}, .value = zeros},
                                  {.key = Key("never"), .shape = {3}, .value = zeros}}));
    ASSERT_STATUS_OK(store->SetOptimizer(Adding(scale)));
    ASSERT_STATUS_OK(store->Barrier());
  }

  static void Push(const char* key, KVStore* store) {
    ASSERT_STATUS_OK(store->Push(Key(key), Values(3, static_cast<float>(store->rank() + 1)), 0));
  }

  static float Pull(const char* key, KVStore* store) {
    Values values(3);
    const absl::Status pulled = store->Pull(Key(key), values, 0);
    EXPECT_TRUE(pulled.ok()) << pulled;
    return values[0];
  }

  // Trains rounds first .. last of both keys.
  static void Train(int first, int last, KVStore* store) {
    for (int round = first; round <= last; ++round) {
      Push("a", store);
      Push("b", store);
      Pull("a", store);
      Pull("b", store);
    }
  }

  // Runs the worker that goes on, and the two processes of the one that dies in round `round`,
  // having pushed a and not b.
  void Run(int round) {
    InProcessCluster cluster(Options());
    Thread lives("lives", [&] {
      const auto store = cluster.JoinWorker(1 - dies());
      ASSERT_STATUS_OK(store.status());
      Start(1, store->get());
      Train(1, round + 2, store->get());
      a_ = Pull("a", store->get());
      b_ = Pull("b", store->get());
      ASSERT_STATUS_OK((*store)->Close());
    });
    Thread returns("returns", [&] { DieAndReturn(round, &cluster); });
    lives.Join();
    returns.Join();
  }

  void DieAndReturn(int round, InProcessCluster* cluster) {
    const auto before = [round](KVStore* store) {
      EXPECT_EQ(store->former_rounds(), 0u);
      Train(1, round - 1, store);
      Push("a", store);
      ASSERT_STATUS_OK(store->Wait());
    };
    Return(cluster, before, [round](KVStore* store) {
      Start(1000, store);  // too late to set another optimizer
      ASSERT_EQ(store->former_rounds(), static_cast<uint64_t>(round));
      EXPECT_EQ(Pull("a", store), 3.0f * static_cast<float>(round));
      EXPECT_EQ(Pull("never", store), 0);
      Train(round + 1, round + 2, store);
      ASSERT_STATUS_OK(store->Close());
    });
  }

  // Runs both processes of the worker that dies: `before` in the first, and `after` in the second.
  void Return(InProcessCluster* cluster, absl::FunctionRef<void(KVStore*)> before,
              absl::FunctionRef<void(KVStore*)> after) {
    const auto former = cluster->JoinWorker(dies());
    ASSERT_STATUS_OK(former.status());
    Start(1, former->get());
    before(former->get());
    Die();
    const auto store = cluster->JoinWorker(dies());
    ASSERT_STATUS_OK(store.status());
    after(store->get());
  }

  virtual void Die() { dead_.store(true); }

  std::atomic<int> processes_{0};
  std::atomic<bool> dead_{false};
  float a_ = 0, b_ = 0;
};

TEST_P(RankReturnTest, GoesOnWithTheNextRoundAndIsLeftOutOfWhatWasLeftOpen) {
  Run(/*round=*/4);
  EXPECT_EQ(a_, 3 * 6);
  EXPECT_EQ(b_, 3 * 6 - static_cast<float>(dies() + 1));
}

TEST_P(RankReturnTest, ABroadcastOfBytesIsAnsweredAsItWasBeforeOrRefused) {
  constexpr std::byte kFirst{1};
  const auto broadcast = [](std::byte value, KVStore* store) {
    std::vector<std::byte> bytes(5, value);
    const std::vector<std::span<std::byte>> buffers = {bytes};
    return store->BroadcastBytes(buffers).status();
  };
  for (const std::byte second : {kFirst, std::byte{2}}) {
    dead_ = false;
    processes_ = 0;
    InProcessCluster cluster(Options());
    Thread lives("lives", [&] {
      const auto store = cluster.JoinWorker(1 - dies());
      ASSERT_STATUS_OK(store.status());
      Start(1, store->get());
      ASSERT_STATUS_OK(broadcast(kFirst, store->get()));
      Train(1, 3, store->get());
      ASSERT_STATUS_OK((*store)->Close());
    });
    const auto before = [&](KVStore* store) {
      ASSERT_STATUS_OK(broadcast(kFirst, store));
      Push("a", store);
      ASSERT_STATUS_OK(store->Wait());
    };
    Return(&cluster, before, [&](KVStore* store) {
      Start(1, store);
      const absl::Status answer = broadcast(second, store);
      EXPECT_EQ(absl::IsFailedPrecondition(answer), second != kFirst) << answer;
      EXPECT_EQ(answer.ok(), second == kFirst) << answer;
      Train(2, 3, store);
      ASSERT_STATUS_OK(store->Close());
    });
    lives.Join();
  }
}

TEST_P(RankReturnTest, WhoReturnsBeforeABroadcastOfBytesTakesPart) {
  const auto broadcast = [](KVStore* store) {
    std::vector<std::byte> bytes(5, std::byte{static_cast<uint8_t>(store->rank())});
    const std::vector<std::span<std::byte>> buffers = {bytes};
    ASSERT_STATUS_OK(store->BroadcastBytes(buffers).status());
    EXPECT_EQ(bytes, std::vector<std::byte>(5, std::byte{0}));
  };
  InProcessCluster cluster(Options());
  const auto train = [&](KVStore* store) {
    ASSERT_NO_FATAL_FAILURE(broadcast(store));
    Train(1, 2, store);
    ASSERT_STATUS_OK(store->Close());
  };
  Thread lives("lives", [&] {
    const auto store = cluster.JoinWorker(1 - dies());
    ASSERT_STATUS_OK(store.status());
    Start(1, store->get());
    train(store->get());
  });
  Return(
      &cluster, [](KVStore*) {},
      [&](KVStore* store) {
        Start(1, store);
        train(store);
      });
  lives.Join();
}

TEST_P(RankReturnTest, AlsoInTheFirstRound) {
  Run(/*round=*/1);
  EXPECT_EQ(a_, 3 * 3);
  EXPECT_EQ(b_, 3 * 3 - static_cast<float>(dies() + 1));
}

// Nobody has pushed the last key yet when the process returns: the other worker waits for a before.
TEST_P(RankReturnTest, AlsoWhereTheFirstRoundWaitsForIt) {
  InProcessCluster cluster(Options());
  float never = 0;
  const auto train_last = [](KVStore* store) {
    Push("never", store);
    Pull("never", store);
  };
  Thread lives("lives", [&] {
    const auto store = cluster.JoinWorker(1 - dies());
    ASSERT_STATUS_OK(store.status());
    Start(1, store->get());
    for (const char* key : {"a", "b"}) {
      Push(key, store->get());
      Pull(key, store->get());
    }
    train_last(store->get());
    Train(2, 2, store->get());
    train_last(store->get());
    a_ = Pull("a", store->get());
    b_ = Pull("b", store->get());
    never = Pull("never", store->get());
    ASSERT_STATUS_OK((*store)->Close());
  });
  Thread returns("returns", [&] {
    const auto before = [](KVStore* store) {
      Push("b", store);
      ASSERT_STATUS_OK(store->Wait());
    };
    Return(&cluster, before, [&](KVStore* store) {
      Start(1, store);
      ASSERT_EQ(store->former_rounds(), 1u);
      Train(2, 2, store);
      train_last(store);
      ASSERT_STATUS_OK(store->Close());
    });
  });
  lives.Join();
  returns.Join();
  const float mine = static_cast<float>(dies() + 1);
  EXPECT_EQ(a_, 3 * 2 - mine);
  EXPECT_EQ(b_, 3 * 2);
  EXPECT_EQ(never, 3 * 2 - mine);
}

// Servers with snapshots take many rounds of one worker, and may have lost those of another key.
TEST_P(RankReturnTest, AKeyMayBeManyRoundsBehindAnotherWhereServersTakeSnapshots) {
  const TestFolder folder;
  ClusterOptions options = Options();
  options.server.snapshots = {.root = folder.path(), .every = absl::Milliseconds(20)};
  InProcessCluster cluster(options);
  Thread lives("lives", [&] {
    const auto store = cluster.JoinWorker(1 - dies());
    ASSERT_STATUS_OK(store.status());
    Start(1, store->get());
    Train(1, 7, store->get());
    a_ = Pull("a", store->get());
    b_ = Pull("b", store->get());
    ASSERT_STATUS_OK((*store)->Close());
  });
  Thread returns("returns", [&] {
    const auto before = [](KVStore* store) {
      Train(1, 1, store);
      for (int round = 2; round <= 6; ++round) Push("a", store);
      ASSERT_STATUS_OK(store->Wait());
    };
    Return(&cluster, before, [](KVStore* store) {
      Start(1, store);
      ASSERT_EQ(store->former_rounds(), 6u);
      Train(7, 7, store);
      ASSERT_STATUS_OK(store->Close());
    });
  });
  lives.Join();
  returns.Join();
  EXPECT_EQ(a_, 3 * 7);
  EXPECT_EQ(b_, 3 * 7 - 5 * static_cast<float>(dies() + 1));
}

// The job goes on without the worker before that returns.
class WorkerAwayTest : public RankReturnTest {
 protected:
  ClusterOptions Options() override {
    ClusterOptions options = RankReturnTest::Options();
    options.scheduler.restart_timeout = absl::ZeroDuration();
    options.scheduler.worker_timeout = absl::Milliseconds(200);
    return options;
  }

  // Goes silent once heartbeats have told the scheduler that this worker has pushed.
  void GoSilent() {
    absl::SleepFor(10 * Options().scheduler.heartbeat_interval);
    dead_.store(true);
  }

  // Ends when the others have trained alone.
  void Die() override {
    GoSilent();
    trained_alone_.WaitForNotification();
  }

  static void SetMean(KVStore* store) {
    wire::OptimizerSpec spec = Adding(1);
    spec.set_average(true);
    ASSERT_STATUS_OK(store->SetOptimizer(spec));
  }

  absl::Notification trained_alone_, is_back_;
};

TEST_P(WorkerAwayTest, RoundsGoOnWithoutItUntilItReturnsAndMeansAreOverWhoContributed) {
  InProcessCluster cluster(Options());
  Thread lives("lives", [&] {
    const auto store = cluster.JoinWorker(1 - dies());
    ASSERT_STATUS_OK(store.status());
    Start(1, store->get());
    SetMean(store->get());
    Train(1, 5, store->get());  // 1: both; 2: a of both, b alone; the others alone
    trained_alone_.Notify();
    is_back_.WaitForNotification();
    Train(6, 7, store->get());
    a_ = Pull("a", store->get());
    b_ = Pull("b", store->get());
    ASSERT_STATUS_OK((*store)->Close());
  });
  Thread returns("returns", [&] {
    const auto before = [](KVStore* store) {
      SetMean(store);
      Train(1, 1, store);
      Push("a", store);
      ASSERT_STATUS_OK(store->Wait());
    };
    Return(&cluster, before, [this](KVStore* store) {
      Start(1000, store);
      EXPECT_EQ(store->former_rounds(), 5u);
      is_back_.Notify();
      Train(6, 7, store);
      EXPECT_EQ(Pull("a", store), 1.5f * 4 + 3 * static_cast<float>(2 - dies()));
      ASSERT_STATUS_OK(store->Close());
    });
  });
  lives.Join();
  returns.Join();
  const float alone = static_cast<float>(2 - dies());
  EXPECT_EQ(a_, 1.5f * 4 + alone * 3);
  EXPECT_EQ(b_, 1.5f * 3 + alone * 4);
}

TEST_P(WorkerAwayTest, AKeyThatNoStepPushesAnyMoreEndsTheJob) {
  ClusterOptions options = Options();
  options.job_fails = true;
  InProcessCluster cluster(options);
  Thread lives("lives", [&] {
    const auto store = cluster.JoinWorker(1 - dies());
    ASSERT_STATUS_OK(store.status());
    Start(1, store->get());
    Train(1, 1, store->get());
    for (int round = 2; round <= 4; ++round) {
      Push("a", store->get());
      Pull("a", store->get());
    }
    trained_alone_.Notify();
    const Values gradient(3, 1);
    Values weights(3);
    absl::Status ended;
    while (ended.ok()) ended = (*store)->PushPull(Key("a"), gradient, weights, 0);
    EXPECT_THAT(std::string(ended.message()), HasSubstr("of key s:b"));
  });
  Thread returns("returns", [&] {
    const auto before = [](KVStore* store) { Train(1, 1, store); };
    Return(&cluster, before, [](KVStore* store) {
      const Values zeros(3, 0);
      const absl::Status status =
          store->Init({{.key = Key("a"), .shape = {3}, .value = zeros},
                       {.key = Key("b"), .shape = {3}, .value = zeros},
                       {.key = Key("never"), .shape = {3}, .value = zeros}});
      EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
      EXPECT_THAT(std::string(status.message()),
                  HasSubstr("of key s:b, which others pushed up to round 1,"));
      store->Abort(status);
    });
  });
  lives.Join();
  returns.Join();
}

TEST_P(WorkerAwayTest, TheJobEndsWithoutIt) {
  InProcessCluster cluster(Options());
  Thread lives("lives", [&] {
    const auto store = cluster.JoinWorker(1 - dies());
    ASSERT_STATUS_OK(store.status());
    Start(1, store->get());
    Train(1, 4, store->get());
    ASSERT_STATUS_OK((*store)->Barrier());
    EXPECT_EQ(Pull("a", store->get()), 3 + 3 * static_cast<float>(2 - dies()));
    ASSERT_STATUS_OK((*store)->Close());
  });
  Thread dies_for_good("dies", [&] {
    const auto former = cluster.JoinWorker(dies());
    ASSERT_STATUS_OK(former.status());
    Start(1, former->get());
    Train(1, 1, former->get());
    GoSilent();
  });
  lives.Join();
  dies_for_good.Join();
}

INSTANTIATE_TEST_SUITE_P(Ranks, WorkerAwayTest, testing::Values(0u, 1u));
INSTANTIATE_TEST_SUITE_P(Ranks, RankReturnTest, testing::Values(0u, 1u));

}  // namespace
}  // namespace slimps
