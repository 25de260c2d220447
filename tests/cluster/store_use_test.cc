// SPDX-License-Identifier: Apache-2.0
// What a store reports, and what it refuses: before it exists, out of turn, after it failed, after
// it was closed.
#include <glog/logging.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <future>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "compress/policy/threshold_table_file.h"
#include "proto/base/mutex.h"
#include "proto/net/testing/in_process_transport.h"
#include "tests/cluster/hooked_transport.h"
#include "tests/cluster/in_process_cluster.h"
#include "tests/cluster/random_values.h"
#include "worker/collective_optimizer.h"

namespace slimps {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

absl::Status CreateStatus(wire::StoreMode mode, const KVStoreOptions& options) {
  return DistStore::Create(mode, options,
                           std::make_unique<InProcessTransport>(
                               std::make_shared<InProcessNetwork>(), TransportOptions{}))
      .status();
}

// Makes every call of a store with the key "w" of two elements. Returns each call's name and
// status.
std::vector<std::pair<std::string, absl::Status>> AskAll(KVStore& store) {
  std::vector<float> w(2);
  std::vector<std::pair<std::string, absl::Status>> said;
  said.emplace_back("Init", store.Init({{.key = "v", .shape = {2}, .value = w}}));
  said.emplace_back("Push", store.Push("w", w, 0));
  said.emplace_back("PushNothing", store.PushNothing("w"));
  said.emplace_back("Pull", store.Pull("w", w, 0));
  said.emplace_back("PushPull", store.PushPull("w", w, w, 0));
  said.emplace_back("Broadcast", store.Broadcast({.key = "u", .shape = {2}, .value = w}, w));
  said.emplace_back("SetOptimizer", store.SetOptimizer({}));
  said.emplace_back("SetHyper", store.SetHyper("w", Hyper{.learning_rate = 1}));
  said.emplace_back("SaveResiduals", store.SaveResiduals().status());
  said.emplace_back("LoadResiduals", store.LoadResiduals(""));
  said.emplace_back("SetGradientCompression", store.SetGradientCompression("1bit"));
  said.emplace_back("Barrier", store.Barrier());
  said.emplace_back("AllReduceSum", store.AllReduceSum({1}).status());
  said.emplace_back("Wait", store.Wait());
  said.emplace_back("Leave", store.Leave());
  absl::Status pulled;
  store.PullAsync("w", w, 0, [&pulled](absl::Status status) { pulled = std::move(status); });
  said.emplace_back("PullAsync", pulled);
  return said;
}

TEST(StoreOptions, WhatCannotBeIsRefusedBeforeAnyoneIsAsked) {
  KVStoreOptions options;
  options.scheduler_address = "inproc://nobody";
  options.join_timeout = absl::InfiniteDuration();
  options.pull_compression = "3bit";
  absl::Status refused = CreateStatus(wire::DIST_SYNC, options);
  EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(refused.message()), HasSubstr("pull compression 3bit: "));
  options.pull_compression = "topk:ratio=2";
  EXPECT_THAT(std::string(CreateStatus(wire::DIST_SYNC, options).message()),
              HasSubstr("pull compression topk:ratio=2: "));
  options.pull_compression = "1bit";
  refused = CreateStatus(wire::DIST_ASYNC, options);
  EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument) << refused;
}

TEST(StoreOptions, AnUnknownTypeIsQuotedWithThoseThatThereAre) {
  for (const std::string type : {"", "locals", "dist", "DIST_SYNC", "dist_sync "}) {
    const absl::Status status = KVStore::Create(type, {}).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << type;
    EXPECT_THAT(
        std::string(status.message()),
        HasSubstr(
            "expected local, device, dist_sync, dist_device_sync, dist_async or dist_ssp, got \"" +
            type + "\""));
  }
}

TEST(StoreOptions, AnEmulatedLinkIsNotBypassedOnOneMachine) {
  KVStoreOptions options;
  EXPECT_EQ(UsedSameHost(options), SameHost::kShm);
  options.emulate_link_latency = absl::Milliseconds(1);
  EXPECT_EQ(UsedSameHost(options), SameHost::kTcp);
  options.emulate_link_latency = absl::ZeroDuration();
  options.emulate_link_bytes_per_second = 1e6;
  EXPECT_EQ(UsedSameHost(options), SameHost::kTcp);
}

TEST(Store, SaysWhatItIs) {
  for (const wire::StoreMode mode : {wire::DIST_SYNC, wire::DIST_ASYNC}) {
    InProcessCluster({.workers = 2, .servers = 1, .mode = mode}).RunWorkers([&](KVStore& store) {
      EXPECT_EQ(store.type(), mode == wire::DIST_SYNC ? "dist_sync" : "dist_async");
      EXPECT_EQ(store.num_workers(), 2u);
      EXPECT_LT(store.rank(), 2u);
      EXPECT_TRUE(store.is_capable("optimizer"));
      EXPECT_FALSE(store.is_capable("magic"));
      EXPECT_EQ(store.totals().pushed.elements, 0u);
      EXPECT_FALSE(store.measuring());
    });
  }
}

TEST(Store, ACallWaitsAsLongAsItsWorkerOrElseTheJobSaysAndForWhoMayComeBack) {
  struct Case {
    absl::Duration own, restart, worker, expected;
  };
  const absl::Duration none = absl::ZeroDuration(), second = absl::Seconds(1);
  for (const Case& one : std::initializer_list<Case>{
           {.own = none, .restart = none, .worker = none, .expected = 777 * second},
           {.own = 5 * second, .restart = none, .worker = none, .expected = 5 * second},
           {.own = 5 * second, .restart = 40 * second, .worker = none, .expected = 100 * second},
           {.own = 5 * second, .restart = none, .worker = 60 * second, .expected = 140 * second},
           {.own = 999 * second, .restart = none, .worker = 60 * second, .expected = 999 * second},
       }) {
    ClusterOptions options{.workers = 1, .servers = 1};
    options.scheduler.timeout = 777 * second;
    options.scheduler.heartbeat_timeout = 10 * second;
    options.scheduler.restart_timeout = one.restart;
    options.scheduler.worker_timeout = one.worker;
    options.store.timeout = one.own;
    InProcessCluster(options).RunWorkers(
        [&](KVStore& store) { EXPECT_EQ(store.timeout(), one.expected); });
  }
}

TEST(Store, ClosedRefusesEverythingAndMayBeClosedAgain) {
  InProcessCluster({.workers = 1, .servers = 1}).RunWorkers([](KVStore& store) {
    const std::vector<float> w(2);
    ASSERT_STATUS_OK(store.Init({{.key = "w", .shape = {2}, .value = w}}));
    ASSERT_STATUS_OK(store.Close());
    for (const auto& [call, status] : AskAll(store)) {
      EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << call << ": " << status;
      EXPECT_EQ(status.message(), "the store was closed") << call;
    }
    ASSERT_STATUS_OK(store.Close());
    store.Abort(absl::InternalError("too late to matter"));
    ASSERT_STATUS_OK(store.Close());
  });
}

TEST(Store, ClosingRefusesEverythingBeforeItSaysGoodbye) {
  std::atomic<KVStore*> closing{nullptr};
  std::vector<std::pair<std::string, absl::Status>> said;
  ClusterOptions options{.workers = 1, .servers = 1};
  options.wrap = Hooked({[&](const Message& message) {
    KVStore* const store = message.header.has_goodbye() ? closing.exchange(nullptr) : nullptr;
    if (store != nullptr) said = AskAll(*store);
    return absl::OkStatus();
  }});
  InProcessCluster(options).RunWorkers([&](KVStore& store) {
    const std::vector<float> w(2);
    ASSERT_STATUS_OK(store.Init({{.key = "w", .shape = {2}, .value = w}}));
    ASSERT_STATUS_OK(store.Push("w", w, 0));
    closing.store(&store);
    ASSERT_STATUS_OK(store.Close());
  });
  EXPECT_FALSE(said.empty());
  for (const auto& [call, status] : said) {
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << call << ": " << status;
    EXPECT_EQ(status.message(), "the store was closed") << call;
  }
}

TEST(Store, FailedTellsTheFirstCauseWhateverIsAsked) {
  ClusterOptions options{.job_fails = true, .workers = 1, .servers = 1};
  InProcessCluster(options).RunWorkers([](KVStore& store) {
    const std::vector<float> w(2);
    ASSERT_STATUS_OK(store.Init({{.key = "w", .shape = {2}, .value = w}}));
    store.Abort(absl::InvalidArgumentError("the data set is empty"));
    store.Abort(absl::InternalError("and the disk is full"));
    for (const auto& [call, status] : AskAll(store)) {
      // InvalidArgument would mean this call's own arguments.
      EXPECT_EQ(status.code(), absl::StatusCode::kAborted) << call << ": " << status;
      EXPECT_EQ(status.message(), "the data set is empty") << call;
    }
  });
}

TEST(Store, CompressionIsSetBeforeTheFirstPush) {
  InProcessCluster({.workers = 1, .servers = 1}).RunWorkers([](KVStore& store) {
    std::vector<float> w(2);
    ASSERT_STATUS_OK(store.Init({{.key = "w", .shape = {2}, .value = w}}));
    ASSERT_STATUS_OK(store.SetGradientCompression("1bit"));
    EXPECT_TRUE(store.measuring());
    ASSERT_STATUS_OK(store.SetGradientCompression("none"));
    EXPECT_FALSE(store.measuring()) << "the newest counts";
    ASSERT_STATUS_OK(store.PushPull("w", std::vector<float>{1, 2}, w, 0));
    EXPECT_EQ(w, (std::vector<float>{1, 2}));
    const absl::Status late = store.SetGradientCompression("2bit");
    EXPECT_EQ(late.code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_THAT(std::string(late.message()), HasSubstr("before the first push"));
    ASSERT_STATUS_OK(store.PushPull("w", std::vector<float>{3, 4}, w, 0));
    EXPECT_EQ(w, (std::vector<float>{3, 4}));
  });
}

TEST(Store, ThePipelineFollowsTheNewestPlan) {
  ClusterOptions options{.workers = 1, .servers = 1};
  options.store.fixed_threshold_bytes = 0;
  InProcessCluster(options).RunWorkers([](KVStore& store) {
    for (const char* codec : {"1bit", "topk:k=1", "2bit:threshold=3"}) {
      ASSERT_STATUS_OK(store.SetGradientCompression(codec));
    }
    EXPECT_FALSE(store.SetGradientCompression("2bit:threshold=-1").ok());  // changes nothing
    std::vector<float> w(4);
    ASSERT_STATUS_OK(store.Init({{.key = "w", .shape = {4}, .value = w}}));
    ASSERT_STATUS_OK(store.PushPull("w", std::vector<float>{9, 2, -1, -4}, w, 0));
    EXPECT_EQ(w, (std::vector<float>{3, 0, 0, -3}));
  });
}

TEST(Store, ASumOfWhatIsNoNumberIsRefusedAtOnce) {
  InProcessCluster({.workers = 2, .servers = 1}).RunWorkers([](KVStore& store) {
    // The call is refused before any worker waits: the other worker never calls it.
    if (store.rank() != 0) return;
    const absl::Status refused =
        store.AllReduceSum({1, std::numeric_limits<double>::infinity()}).status();
    EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(refused.message()), HasSubstr("value 1 is inf"));
  });
}

TEST(Store, TheOptimizerIsRankZerosAndHeldAgainstTheCodecByAll) {
  InProcessCluster({.workers = 2, .servers = 1}).RunWorkers([](KVStore& store) {
    ASSERT_STATUS_OK(store.SetGradientCompression("dgc"));
    wire::OptimizerSpec spec;
    spec.set_kind(wire::OptimizerSpec::SGD);
    spec.set_learning_rate(1);
    spec.set_momentum(0.9);
    // Each worker refuses it itself, also a worker that would send nothing.
    EXPECT_EQ(store.SetOptimizer(spec).code(), absl::StatusCode::kInvalidArgument) << store.rank();
  });
}

TEST(StoreUse, OptimizersThatDifferAreToldToBothWorkersAtOnce) {
  InProcessCluster({.workers = 2, .servers = 1}).RunWorkers([](KVStore& store) {
    const absl::Status told = SetOptimizerTogether(Sgd(store.rank() == 0 ? 0.5 : 0.25), &store);
    EXPECT_EQ(told.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(told.message()),
                AllOf(HasSubstr("worker 1 comes for setting the optimizer: kind: SGD "
                                "learning_rate: 0.25"),
                      HasSubstr("worker 0 comes: for setting the optimizer: kind: SGD "
                                "learning_rate: 0.5")));
  });
}

TEST(StoreUse, KeysThatDifferAreToldToBothWorkersAtOnce) {
  InProcessCluster({.workers = 2, .servers = 1}).RunWorkers([](KVStore& store) {
    const std::vector<float> value(1);
    ASSERT_STATUS_OK(store.Init({{.key = "a", .shape = {1}, .value = value}}));
    const char* const mine = store.rank() == 0 ? "b" : "c";
    const absl::Status told = store.Init({{.key = mine, .shape = {1}, .value = value}});
    EXPECT_EQ(told.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(told.message()),
                AllOf(HasSubstr("only worker 0 has s:b, shape [1], dtype FLOAT32"),
                      HasSubstr("only worker 1 has s:c, shape [1], dtype FLOAT32")));
  });
}

TEST(StoreUse, WhatIsNotInTimeNamesTheTimeoutAndWhomTheJobWaitsFor) {
  ClusterOptions options{.workers = 2, .servers = 1};
  options.scheduler.heartbeat_interval = absl::Milliseconds(50);
  options.edit_store = [](uint32_t worker, KVStoreOptions* store) {
    if (worker == 0) store->timeout = absl::Seconds(4);
  };
  InProcessCluster cluster(options);
  cluster.scheduler().Observe({.waits = "a barrier waits 3 s for worker 1, at train.py:88"});
  std::promise<void> over;
  cluster.RunWorkers([&](KVStore& store) {
    if (store.rank() == 1) return over.get_future().wait();
    const absl::Status late = store.Barrier();
    over.set_value();
    EXPECT_EQ(late.code(), absl::StatusCode::kDeadlineExceeded);
    EXPECT_THAT(std::string(late.message()),
                HasSubstr("worker 0 waited 4s for worker 1 and gave up; timeout_s is 4, which must "
                          "be longer than a worker evaluates or saves while others wait for it; "
                          "the scheduler sees: a barrier waits 3 s for worker 1, at train.py:88"));
  });
}

TEST(StoreUse, ASumAndTheSettingOfAnOptimizerDoNotMix) {
  InProcessCluster({.workers = 2, .servers = 1}).RunWorkers([](KVStore& store) {
    ASSERT_STATUS_OK(store.Init({{.key = "w", .shape = {1}, .value = std::vector<float>(1)}}));
    const absl::Status status = store.rank() == 0 ? store.AllReduceSum({0}).status()
                                                  : SetOptimizerTogether(Sgd(0.1), &store);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
    EXPECT_THAT(std::string(status.message()),
                HasSubstr("worker 1 comes for setting the optimizer"));
    EXPECT_THAT(std::string(status.message()), HasSubstr("worker 0 comes: for a sum over all"));
    EXPECT_EQ(store.AllReduceSum({1}).value(), std::vector<double>{2}) << "the next are together";
  });
}

// Collects the lines logged while it lives.
class LoggedLines final : public google::LogSink {
 public:
  LoggedLines() { google::AddLogSink(this); }
  ~LoggedLines() override { google::RemoveLogSink(this); }
  void send(google::LogSeverity, const char*, const char*, int, const google::LogMessageTime&,
            const char* message, size_t bytes) override {
    MutexLock lock(&mutex_);
    lines_.emplace_back(message, bytes);
  }
  size_t CountOf(const std::string& text) {
    MutexLock lock(&mutex_);
    return static_cast<size_t>(std::ranges::count_if(
        lines_, [&](const std::string& line) { return line.find(text) != line.npos; }));
  }

 private:
  Mutex mutex_;
  std::vector<std::string> lines_ ABSL_GUARDED_BY(mutex_);
};

TEST(StoreUse, WorkersWhoseCodecsDifferAreToldOnceWhoHasWhich) {
  for (const bool differ : {true, false}) {
    LoggedLines lines;
    ClusterOptions options{.workers = 2, .servers = 1};
    options.store.fixed_threshold_bytes = 0;  // measured ones would have to be of one codec
    InProcessCluster(options).RunWorkers([&](KVStore& store) {
      ASSERT_STATUS_OK(
          store.SetGradientCompression(differ && store.rank() == 1 ? "1bit" : "topk:k=1"));
      for (const char* key : {"a", "b"}) {
        ASSERT_STATUS_OK(store.Init({{.key = key, .shape = {1}, .value = std::vector<float>(1)}}));
      }
    });
    EXPECT_EQ(lines.CountOf("workers compress in different ways: worker 0: topk"), differ ? 2u : 0u)
        << "one line a worker";
    EXPECT_EQ(lines.CountOf("worker 1: 1bit"), differ ? 2u : 0u);
  }
}

TEST(StoreUse, OneBitWithAdamIsWarnedOfOnceWhicheverIsSetFirst) {
  for (const bool codec_first : {true, false}) {
    LoggedLines lines;
    ClusterOptions options{.workers = 2, .servers = 1};
    options.store.fixed_threshold_bytes = 0;
    InProcessCluster(options).RunWorkers([&](KVStore& store) {
      wire::OptimizerSpec adam;
      adam.set_kind(wire::OptimizerSpec::ADAM);
      adam.set_beta1(0.9);
      adam.set_beta2(0.999);
      adam.set_epsilon(1e-8);
      if (codec_first) ASSERT_STATUS_OK(store.SetGradientCompression("1bit"));
      ASSERT_STATUS_OK(store.SetOptimizer(adam));
      ASSERT_STATUS_OK(store.SetOptimizer(adam));
      if (!codec_first) ASSERT_STATUS_OK(store.SetGradientCompression("1bit"));
      ASSERT_STATUS_OK(store.Barrier());
    });
    EXPECT_EQ(lines.CountOf("codec 1bit with optimizer adam"), 1u) << codec_first;
  }
}

TEST(StoreUse, WorkerZeroSaysOnceThatATableSendsEverythingRaw) {
  ThresholdTable table("1bit");
  table.AddRaw(4, absl::Milliseconds(1));
  table.AddCompressed(4, absl::Milliseconds(2), absl::Milliseconds(1));
  const std::string path = ::testing::TempDir() + "/raw_is_faster";
  ASSERT_TRUE(SaveThresholdTables({.push = table, .pull = std::nullopt}, path).ok());
  LoggedLines lines;
  ClusterOptions options{.workers = 2, .servers = 1};
  options.store.compression = "1bit";
  options.store.threshold_table_file = path;
  InProcessCluster(options).RunWorkers([&](KVStore& store) {
    ASSERT_STATUS_OK(store.Init({{.key = "a", .shape = {1}, .value = std::vector<float>(1)}}));
    std::vector<float> w(1);
    ASSERT_STATUS_OK(store.PushPull("a", std::vector<float>(1), w, 0));
  });
  EXPECT_EQ(lines.CountOf("threshold=0 compresses every tensor"), 1u);
  EXPECT_EQ(lines.CountOf("measuring up to step"), 0u);
  options.store.threshold_table_file.clear();
  InProcessCluster(options).RunWorkers([](KVStore&) {});
  EXPECT_EQ(lines.CountOf("measuring up to step 20 "), 1u);
}

TEST(StoreUse, SumOverWorkersIsInEveryonesHands) {
  InProcessCluster cluster({.workers = 3, .servers = 1});
  cluster.RunWorkers([](KVStore& store) {
    const auto sums = store.AllReduceSum({1.0, static_cast<double>(store.rank())});
    ASSERT_TRUE(sums.ok()) << sums.status();
    EXPECT_EQ(*sums, (std::vector<double>{3.0, 3.0}));
  });
}

}  // namespace
}  // namespace slimps
