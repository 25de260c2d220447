// SPDX-License-Identifier: Apache-2.0
// How a worker handles failures of others and of its own: whose reports it believes, and that its
// own reason reaches every node.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <new>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "proto/base/clock.h"
#include "proto/base/mutex.h"
#include "tests/cluster/in_process_cluster.h"

namespace slimps {
namespace {

using ::testing::HasSubstr;

constexpr absl::Duration kLong = absl::Seconds(30);  // only a failing test waits this long

// A test's access to the transport below one worker's store.
struct Tap {
  // Called for each message before it goes out. The message is lost if it returns false.
  std::function<bool(const Message&)> on_send = [](const Message&) { return true; };
  // Called for each connection before it is made.
  std::function<absl::Status(std::string_view)> on_connect = [](std::string_view) {
    return absl::OkStatus();
  };
  MessageSink* sink = nullptr;          // the store
  std::atomic<bool> deaf{false};        // messages that arrive are lost
  std::map<std::string, PeerId> peers;  // by address
  std::atomic<bool> stopped{false};
};

class TappedTransport final : public Transport, private MessageSink {
 public:
  TappedTransport(std::unique_ptr<Transport> inner, Tap* tap)
      : inner_(std::move(inner)), tap_(tap) {}
  using Transport::Send;
  absl::StatusOr<std::string> Bind(std::string_view address) override {
    return inner_->Bind(address);
  }
  absl::Status Start(MessageSink* sink) override {
    tap_->sink = sink;
    return inner_->Start(this);
  }
  absl::StatusOr<PeerId> Connect(std::string_view address) override {
    const absl::Status allowed = tap_->on_connect(address);
    if (!allowed.ok()) return allowed;
    const absl::StatusOr<PeerId> peer = inner_->Connect(address);
    if (peer.ok()) tap_->peers[std::string(address)] = *peer;
    return peer;
  }
  absl::Status Send(PeerId to, Message message, SendOptions options) override {
    if (!tap_->on_send(message)) return absl::OkStatus();
    return inner_->Send(to, std::move(message), std::move(options));
  }
  void Stop() override {
    tap_->stopped.store(true);
    inner_->Stop();
  }

 private:
  void OnMessage(PeerId from, Message message) override {
    if (!tap_->deaf.load()) tap_->sink->OnMessage(from, std::move(message));
  }
  void OnBadFrame(PeerId from, const absl::Status& why) override {
    tap_->sink->OnBadFrame(from, why);
  }
  void OnUndeliverable(PeerId to, const absl::Status& why) override {
    tap_->sink->OnUndeliverable(to, why);
  }

  const std::unique_ptr<Transport> inner_;
  Tap* const tap_;
};

// Puts the tap below the store of `worker`.
void Put(Tap* tap, uint32_t worker, ClusterOptions* options) {
  options->wrap = [tap, worker](
                      uint32_t index,
                      std::unique_ptr<Transport> transport) -> std::unique_ptr<Transport> {
    if (index != worker) return transport;
    return std::make_unique<TappedTransport>(std::move(transport), tap);
  };
}

Message MapOf(const std::string& codec, uint64_t version) {
  Message message;
  message.header.set_job_id("slimps");
  message.header.mutable_sender()->set_role(wire::SERVER);
  message.header.mutable_codec_map()->set_version(version);
  message.header.mutable_codec_map()->set_from_round(8);
  message.header.mutable_codec_map()->set_codec(codec);
  message.header.mutable_codec_map()->set_codec_below("none");
  return message;
}

TEST(CodecMaps, CountFromTheSchedulerAlone) {
  Tap tap;
  ClusterOptions options{.workers = 1, .servers = 1};
  options.store.compression = "1bit";
  Put(&tap, 0, &options);
  InProcessCluster(options).RunWorkers([&](KVStore& store) {
    ASSERT_EQ(tap.peers.size(), 2u);
    const PeerId scheduler = tap.peers.at("inproc://scheduler");
    for (const auto& [address, peer] : tap.peers) {
      if (peer == scheduler) continue;
      tap.sink->OnMessage(peer, MapOf("1bit", 1));
      // A map that no worker could follow does not end the job either, if a server sends it.
      tap.sink->OnMessage(peer, MapOf("no such codec", 2));
    }
    EXPECT_FALSE(store.codec_map().has_value());
    EXPECT_TRUE(store.measuring());
    tap.sink->OnMessage(scheduler, MapOf("1bit", 3));
    ASSERT_TRUE(store.codec_map().has_value());
    EXPECT_EQ(store.codec_map()->version(), 3u);
  });
}

TEST(CodecMaps, OneThatTheWorkerCannotFollowEndsTheJob) {
  Tap tap;
  ClusterOptions options{.job_fails = true, .workers = 1, .servers = 1};
  options.store.compression = "1bit";
  Put(&tap, 0, &options);
  InProcessCluster(options).RunWorkers([&](KVStore& store) {
    tap.sink->OnMessage(tap.peers.at("inproc://scheduler"), MapOf("no such codec", 1));
    const absl::Status failed = store.Barrier();
    EXPECT_THAT(std::string(failed.message()), HasSubstr("no such codec")) << failed;
  });
}

// The job fails and decisions arrive while a worker sets compression again and again. The worker
// learns of the failure, and no plan that it makes meanwhile misses it.
TEST(Failures, ComeWhileCompressionIsBeingSet) {
  Tap tap;
  ClusterOptions options{.job_fails = true, .workers = 2, .servers = 1};
  options.store.compression = "1bit";
  Put(&tap, 0, &options);
  InProcessCluster(options).RunWorkers([&](KVStore& store) {
    ASSERT_STATUS_OK(store.Barrier());
    if (store.rank() == 1) {
      ASSERT_STATUS_OK(store.Barrier());
      return store.Abort(absl::InternalError("disk full"));
    }
    std::atomic<bool> over{false};
    std::thread decisions([&] {
      for (uint64_t version = 1; !over.load(); ++version) {
        tap.sink->OnMessage(tap.peers.at("inproc://scheduler"), MapOf("1bit", version));
      }
    });
    for (int i = 0; i < 20; ++i) ASSERT_STATUS_OK(store.SetGradientCompression("topk"));
    ASSERT_STATUS_OK(store.Barrier());
    absl::Status failed;
    const SteadyTime deadline = MachineClock()->Now() + kLong;
    for (int i = 0; failed.ok() && MachineClock()->Now() < deadline; ++i) {
      failed = store.SetGradientCompression(i % 2 == 0 ? "1bit" : "topk");
      (void)store.measuring();
      (void)store.codec_map();
    }
    over.store(true);
    decisions.join();
    EXPECT_THAT(std::string(failed.message()), HasSubstr("disk full")) << failed;
    EXPECT_EQ(store.SetGradientCompression("1bit"), failed);
  });
}

TEST(Failures, ReachTheOthersThoughTheFirstReportIsLost) {
  Tap tap;
  std::atomic<int> reports{0};
  tap.on_send = [&reports](const Message& message) {
    return !message.header.has_error() || ++reports > 2;
  };
  ClusterOptions options{.job_fails = true, .workers = 2, .servers = 1};
  Put(&tap, 0, &options);
  InProcessCluster(options).RunWorkers([](KVStore& store) {
    ASSERT_STATUS_OK(store.Barrier());
    // Worker 0 closes its store at once.
    if (store.rank() == 0) return store.Abort(absl::InternalError("disk full"));
    const absl::Status failed = store.Barrier();
    EXPECT_THAT(std::string(failed.message()), HasSubstr("worker 0")) << failed;
    EXPECT_THAT(std::string(failed.message()), HasSubstr("disk full")) << failed;
  });
  EXPECT_GE(reports.load(), 3);
}

// Returns a job of one worker that cannot hear the scheduler once the tap is deaf.
ClusterOptions SilentScheduler(Tap* tap) {
  ClusterOptions options{.job_fails = true, .workers = 1, .servers = 1};
  options.scheduler.heartbeat_interval = absl::Milliseconds(50);
  options.scheduler.heartbeat_timeout = absl::Seconds(2);
  Put(tap, 0, &options);
  return options;
}

TEST(Failures, TheStoreOutlivesWhoTellsItOfThem) {
  Tap tap;
  std::atomic<KVStore*> told{nullptr};
  Mutex mutex;
  CondVar changed;
  bool telling = false, was_stopped = false;
  tap.on_send = [&](const Message& message) {
    KVStore* const store = told.load();
    if (store == nullptr || !message.header.has_heartbeat() || store->Wait().ok()) return true;
    // The heartbeat's thread knows of the failure, and tells the store next. A store that does not
    // wait for the thread would be closed within this time.
    MutexLock lock(&mutex);
    telling = true;
    changed.NotifyAll();
    was_stopped =
        changed.Await(&mutex, absl::Milliseconds(300), [&] { return tap.stopped.load(); });
    return true;
  };
  InProcessCluster(SilentScheduler(&tap)).RunWorkers([&](KVStore& store) {
    ASSERT_STATUS_OK(store.Barrier());
    told.store(&store);
    tap.deaf.store(true);
    MutexLock lock(&mutex);
    ASSERT_TRUE(changed.Await(&mutex, kLong, [&] { return telling; }));
  });
  EXPECT_FALSE(was_stopped);
}

TEST(Failures, EndAllPullsAndTheStoreMayGoWithTheFirst) {
  Tap tap;
  ClusterOptions options = SilentScheduler(&tap);
  options.store.partition_bytes = 64;
  std::atomic<int> ended{0};
  InProcessCluster(options).RunWorkers([&](KVStore& store) {
    std::vector<float> many(4096), one(16);
    ASSERT_STATUS_OK(store.Init({{.key = "many", .shape = {4096}, .value = many},
                                 {.key = "one", .shape = {16}, .value = one}}));
    // The tap is deaf now, so no pull is answered.
    tap.deaf.store(true);
    store.PullAsync("many", many, 0, [&ended](const absl::Status& status) {
      EXPECT_FALSE(status.ok());
      ++ended;
    });
    const absl::Status failed = store.Pull("one", one, 0);
    EXPECT_THAT(std::string(failed.message()), HasSubstr("has been silent")) << failed;
  });
  EXPECT_EQ(ended.load(), 1);
}

// The timeout is an hour, so the other nodes can learn of the failure only by being told.
TEST(Failures, OfAWorkerThatHasJustJoinedReachTheOthers) {
  Tap tap;
  tap.on_connect = [](std::string_view address) {
    return address == "inproc://scheduler" ? absl::OkStatus() : absl::InternalError("no route");
  };
  ClusterOptions options{.job_fails = true, .workers = 2, .servers = 1};
  options.scheduler.heartbeat_timeout = absl::Hours(1);
  Put(&tap, 1, &options);
  std::atomic<int> refused{0};
  options.on_join_error = [&refused](const absl::Status& why) {
    EXPECT_EQ(why, absl::InternalError("no route"));
    ++refused;
  };
  InProcessCluster(options).RunWorkers([](KVStore& store) {
    const absl::Status failed = store.Barrier();
    EXPECT_THAT(std::string(failed.message()), HasSubstr("worker 1")) << failed;
    EXPECT_THAT(std::string(failed.message()), HasSubstr("no route")) << failed;
  });
  EXPECT_EQ(refused.load(), 1);
}

// Nobody but this worker has a timeout that ends soon.
TEST(Failures, AWorkerThatCannotDeliverWhatItPushedTellsTheOthersAsItCloses) {
  Tap tap;
  std::atomic<bool> cut{false};
  tap.on_send = [&cut](const Message& message) {
    return !cut.load() || !message.header.has_push();
  };
  ClusterOptions options{.job_fails = true, .workers = 2, .servers = 1};
  options.scheduler.heartbeat_timeout = absl::Hours(1);
  options.edit_store = [](uint32_t worker, KVStoreOptions* store) {
    store->timeout = worker == 1 ? absl::Seconds(4) : absl::Minutes(5);
  };
  Put(&tap, 1, &options);
  InProcessCluster(options).RunWorkers([&](KVStore& store) {
    std::vector<float> w(2);
    ASSERT_STATUS_OK(store.Init({{.key = "w", .shape = {2}, .value = w}}));
    if (store.rank() == 1) {
      cut.store(true);
      ASSERT_STATUS_OK(store.Push("w", w, 0));
      return;
    }
    const absl::Status failed = store.PushPull("w", w, w, 0);
    EXPECT_THAT(std::string(failed.message()), HasSubstr("worker 1")) << failed;
    EXPECT_THAT(std::string(failed.message()), HasSubstr("pushes unacknowledged")) << failed;
  });
}

TEST(Failures, OfOptionsAreSaidBeforeAnybodyIsWaitedFor) {
  KVStoreOptions options;
  options.scheduler_address = "inproc://nobody";
  options.timeout = absl::Hours(1);
  const auto create = [&](wire::StoreMode mode) {
    auto transport = std::make_unique<InProcessTransport>(std::make_shared<InProcessNetwork>(),
                                                          TransportOptions{});
    return DistStore::Create(mode, options, std::move(transport)).status();
  };
  options.remeasure_every = 12;
  EXPECT_THAT(std::string(create(wire::DIST_ASYNC).message()), HasSubstr("remeasure_every=12"));
  options.threshold_table_file = "no/such/table";
  const absl::Status missing = create(wire::DIST_SYNC);
  EXPECT_THAT(std::string(missing.message()), HasSubstr("no/such/table")) << missing;
}

TEST(Failures, ReachTheOthersThoughWhoeverSeesThemFirstClosesTheStore) {
  Tap tap;
  Mutex mutex;
  CondVar changed;
  bool reporting = false;
  tap.on_send = [&](const Message& message) {
    if (!message.header.has_error()) return true;
    MutexLock lock(&mutex);
    reporting = true;
    changed.NotifyAll();
    // A store that does not wait for its report would be closed within this time.
    changed.Await(&mutex, absl::Milliseconds(200), [&] { return tap.stopped.load(); });
    return true;
  };
  ClusterOptions options{.job_fails = true, .workers = 2, .servers = 1};
  options.store.compression = "topk:k=1";
  options.store.fixed_threshold_bytes = 0;
  Put(&tap, 0, &options);
  InProcessCluster(options).RunWorkers([&](KVStore& store) {
    std::vector<float> w(2);
    ASSERT_STATUS_OK(store.Init({{.key = "w", .shape = {2}, .value = w}}));
    if (store.rank() == 0) {
      // The unsent part waits in the residual. With the next gradient it exceeds fp32, on the push
      // thread.
      ASSERT_STATUS_OK(store.Push("w", std::vector<float>(2, 3e38f), 0));
      ASSERT_STATUS_OK(store.Push("w", std::vector<float>(2, 3e38f), 0));
      MutexLock lock(&mutex);
      ASSERT_TRUE(changed.Await(&mutex, kLong, [&] { return reporting; }));
      return;
    }
    const absl::Status failed = store.Barrier();
    EXPECT_THAT(std::string(failed.message()), HasSubstr("key s:w partition 0")) << failed;
  });
}

}  // namespace
}  // namespace slimps
