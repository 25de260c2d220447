// SPDX-License-Identifier: Apache-2.0
// Memory runs out in a user's process, on a thread of the library or in a call. The store fails.
// All its calls say why, also those that wait. The process lives.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tests/cluster/in_process_cluster.h"
#include "tests/proto/base/failing_allocations.h"

namespace slimps {
namespace {

using ::testing::HasSubstr;

// Chooses the message whose arrival or sending has a failing allocation, on the thread that handles
// it.
struct Failing {
  std::function<bool(const wire::Header&)> arrives = [](const wire::Header&) { return false; };
  std::function<bool(const wire::Header&)> leaves = [](const wire::Header&) { return false; };
  int allocation = 0;
  std::atomic<bool> armed{false};
  std::atomic<bool> ran_out{false};
};

class StarvedTransport final : public Transport, private MessageSink {
 public:
  StarvedTransport(std::unique_ptr<Transport> inner, Failing* failing)
      : inner_(std::move(inner)), failing_(failing) {}
  using Transport::Send;
  absl::StatusOr<std::string> Bind(std::string_view address) override {
    return inner_->Bind(address);
  }
  absl::Status Start(MessageSink* sink) override {
    sink_ = sink;
    return inner_->Start(this);
  }
  absl::StatusOr<PeerId> Connect(std::string_view address) override {
    return inner_->Connect(address);
  }
  absl::Status Send(PeerId to, Message message, SendOptions options) override {
    const bool fails = failing_->leaves(message.header) && failing_->armed.exchange(false);
    absl::Status sent;
    const auto send = [&] { sent = inner_->Send(to, std::move(message), std::move(options)); };
    Run(fails, send);
    return sent;
  }
  void Stop() override { inner_->Stop(); }

 private:
  void Run(bool fails, const std::function<void()>& work) {
    if (!fails) return work();
    FailAllocation(failing_->allocation);
    try {
      work();
    } catch (const std::bad_alloc&) {
      failing_->ran_out = EndFailing();
      throw;
    }
    failing_->ran_out = EndFailing();
  }
  void OnMessage(PeerId from, Message message) override {
    const bool fails = failing_->arrives(message.header) && failing_->armed.exchange(false);
    Run(fails, [&] { sink_->OnMessage(from, std::move(message)); });
  }
  void OnBadFrame(PeerId from, const absl::Status& why) override { sink_->OnBadFrame(from, why); }
  void OnUndeliverable(PeerId to, const absl::Status& why) override {
    sink_->OnUndeliverable(to, why);
  }
  void OnOutOfMemory(const std::bad_alloc& error) override { sink_->OnOutOfMemory(error); }

  const std::unique_ptr<Transport> inner_;
  Failing* const failing_;
  MessageSink* sink_ = nullptr;
};

// Returns a job of two workers, where worker 1 runs out of memory.
ClusterOptions Starving(Failing* failing, bool job_fails) {
  ClusterOptions options{.job_fails = job_fails, .workers = 2, .servers = 1};
  options.wrap = [failing](uint32_t worker,
                           std::unique_ptr<Transport> inner) -> std::unique_ptr<Transport> {
    if (worker != 1) return inner;
    return std::make_unique<StarvedTransport>(std::move(inner), failing);
  };
  return options;
}

void ExpectEveryCallSaysWhy(KVStore& store) {
  std::vector<float> w(2);
  for (const absl::Status& status :
       {store.Push("w", w, 0), store.Pull("w", w, 0), store.PushPull("w", w, w, 0), store.Barrier(),
        store.AllReduceSum({1}).status(), store.Wait(), store.SaveResiduals().status()}) {
    EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr("the store has failed: "));
    EXPECT_THAT(std::string(status.message()), HasSubstr("out of memory"));
  }
}

// Each allocation fails once while the weights arrive, in a job of its own.
TEST(StoreOutOfMemory, WhereItReceivesFailsTheStoreAndNotTheProcess) {
  int failed = 0;
  for (int n = 0;; ++n) {
    SCOPED_TRACE(n);
    Failing failing;
    failing.arrives = [](const wire::Header& header) { return header.has_pull_reply(); };
    failing.allocation = n;
    ClusterOptions options = Starving(&failing, /*job_fails=*/true);
    InProcessCluster cluster(options);
    cluster.RunWorkers([&](KVStore& store) {
      std::vector<float> w(2);
      ASSERT_STATUS_OK(store.Init({{.key = "w", .shape = {2}, .value = w}}));
      if (store.rank() == 0) {
        (void)store.PushNothing("w");
        EXPECT_FALSE(store.Barrier().ok()) << "the other one has failed";
        return;
      }
      failing.armed = true;
      (void)store.PushPull("w", w, w, 0);  // its answer may have come before
      if (failing.ran_out) {
        ++failed;
        // The thread that ran out tells the store once it has dropped the message.
        while (store.PushNothing("w").ok()) std::this_thread::yield();
        ExpectEveryCallSaysWhy(store);
      } else {
        store.Abort(absl::AbortedError("no more allocations"));
      }
    });
    if (!failing.ran_out) break;
  }
  EXPECT_GE(failed, 1);
}

// Waiting calls get the error, whichever thread runs out of memory.
TEST(StoreOutOfMemory, EndsWhatWaits) {
  for (const bool where_it_sends : {false, true}) {
    SCOPED_TRACE(where_it_sends);
    Failing failing;
    if (where_it_sends) {
      failing.leaves = [](const wire::Header& header) { return header.has_push(); };
    } else {
      failing.arrives = [](const wire::Header& header) { return header.has_pull_reply(); };
    }
    InProcessCluster cluster(Starving(&failing, /*job_fails=*/true));
    cluster.RunWorkers([&](KVStore& store) {
      std::vector<float> w(2), v(2);
      ASSERT_STATUS_OK(store.Init(
          {{.key = "w", .shape = {2}, .value = w}, {.key = "v", .shape = {2}, .value = v}}));
      // Rank 0 pushes nothing, so the other worker's rounds never become complete.
      if (store.rank() == 0) {
        EXPECT_FALSE(store.Barrier().ok());
        return;
      }
      ASSERT_STATUS_OK(store.Push("v", v, 0));
      ASSERT_STATUS_OK(store.Wait());
      absl::Status pulled, at_barrier;
      std::thread pulling([&] { pulled = store.Pull("v", v, 0); });
      std::thread waiting([&] { at_barrier = store.AllReduceSum({1, 2}).status(); });
      failing.armed = true;
      (void)(where_it_sends ? store.Push("w", w, 0) : store.Pull("w", w, 0));
      pulling.join();
      waiting.join();
      for (const absl::Status& status : {pulled, at_barrier}) {
        EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << status;
        EXPECT_THAT(std::string(status.message()), HasSubstr("out of memory"));
      }
      ExpectEveryCallSaysWhy(store);
    });
  }
}

TEST(StoreOutOfMemory, InACallFailsTheStore) {
  Failing none;
  InProcessCluster cluster(Starving(&none, /*job_fails=*/true));
  cluster.RunWorkers([&](KVStore& store) {
    std::vector<float> w(2);
    ASSERT_STATUS_OK(store.Init({{.key = "w", .shape = {2}, .value = w}}));
    if (store.rank() == 0) {
      EXPECT_FALSE(store.Barrier().ok());
      return;
    }
    absl::Status status;
    for (int n = 0; status.ok(); ++n) {
      FailAllocation(n);
      status = store.Barrier();
      if (!EndFailing()) FAIL() << "a barrier that takes no memory";
    }
    EXPECT_THAT(std::string(status.message()), HasSubstr("the store has failed: "));
    ExpectEveryCallSaysWhy(store);
  });
}

}  // namespace
}  // namespace slimps
