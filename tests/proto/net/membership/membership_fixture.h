// SPDX-License-Identifier: Apache-2.0
// Fixtures that run Membership and the scheduler's service against each other, over the in-process
// transport.
#ifndef SLIMPS_TESTS_PROTO_NET_MEMBERSHIP_MEMBERSHIP_FIXTURE_H_
#define SLIMPS_TESTS_PROTO_NET_MEMBERSHIP_MEMBERSHIP_FIXTURE_H_

#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "proto/base/clock.h"
#include "proto/base/mutex.h"
#include "proto/net/membership/membership.h"
#include "proto/net/testing/in_process_transport.h"
#include "scheduler/scheduler_service.h"

namespace slimps {

// The time that a step may take on a busy machine. Only a failing test waits this long.
inline constexpr absl::Duration kLong = absl::Seconds(30);

inline TransportOptions QuickToStop() {
  TransportOptions options;
  options.linger = absl::Milliseconds(50);
  return options;
}

// A scheduler with a thread of its own that checks deadlines. Thread-compatible.
class TestScheduler final {
 public:
  TestScheduler(std::shared_ptr<InProcessNetwork> network, SchedulerOptions options)
      : transport_(std::move(network), TransportOptions{}),
        service_(&transport_, options, &clock_) {
    EXPECT_TRUE(transport_.Bind("inproc://scheduler").ok());
    EXPECT_TRUE(transport_.Start(&service_).ok());
    ticks_ = std::thread([this] { Run(); });
  }
  ~TestScheduler() { Stop(); }
  void Stop() {
    {
      MutexLock lock(&mutex_);
      stopping_ = true;
      changed_.NotifyAll();
    }
    if (ticks_.joinable()) ticks_.join();
    transport_.Stop();
  }
  SchedulerService& service() { return service_; }
  bool AwaitDone() {
    MutexLock lock(&mutex_);
    const SteadyTime deadline = MachineClock()->Now() + kLong;
    while (!done_ && MachineClock()->Now() < deadline)
      changed_.WaitFor(&mutex_, deadline - MachineClock()->Now());
    return done_;
  }

 private:
  void Run() {
    MutexLock lock(&mutex_);
    while (!stopping_) {
      changed_.WaitFor(&mutex_, absl::Milliseconds(5));
      service_.Tick();
      if (service_.done() && !done_) {
        done_ = true;
        changed_.NotifyAll();
      }
    }
  }
  const RealClock clock_;
  InProcessTransport transport_;
  SchedulerService service_;
  Mutex mutex_;
  CondVar changed_;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  bool done_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread ticks_;
};

class TestNode final : public MessageSink {
 public:
  TestNode(std::shared_ptr<InProcessNetwork> network, MembershipOptions options)
      : transport_(std::move(network), QuickToStop()), membership_(&transport_, options) {
    EXPECT_TRUE(transport_.Start(this).ok());
  }
  ~TestNode() override { transport_.Stop(); }
  void Listen() {
    membership_.SetDownHandler([this](absl::Status why) {
      MutexLock lock(&mutex_);
      down_ = std::move(why);
      changed_.NotifyAll();
    });
  }
  void OnMessage(PeerId from, Message message) override {
    membership_.HandleMessage(from, message);
  }
  void OnBadFrame(PeerId, const absl::Status&) override {}
  void OnUndeliverable(PeerId, const absl::Status&) override {}

  Membership& membership() { return membership_; }
  uint64_t messages_sent() const { return transport_.stats().messages_sent; }

  // Acts as if the process had died: the node sends and receives nothing more.
  void Vanish() { transport_.Stop(); }
  std::optional<absl::Status> AwaitDown() {
    MutexLock lock(&mutex_);
    const SteadyTime deadline = MachineClock()->Now() + kLong;
    while (!down_.has_value() && MachineClock()->Now() < deadline) {
      changed_.WaitFor(&mutex_, deadline - MachineClock()->Now());
    }
    return down_;
  }

 private:
  InProcessTransport transport_;
  Mutex mutex_;
  CondVar changed_;
  std::optional<absl::Status> down_ ABSL_GUARDED_BY(mutex_);
  Membership membership_;
};

class MembershipTest : public testing::Test {
 protected:
  static SchedulerOptions Scheduler() {
    SchedulerOptions options;
    options.num_workers = 2;
    options.num_servers = 1;
    options.heartbeat_interval = absl::Milliseconds(20);
    options.heartbeat_timeout = absl::Seconds(20);
    options.shutdown_grace = absl::Milliseconds(200);
    return options;
  }
  std::unique_ptr<TestNode> Node(wire::Role role, int32_t wanted_rank = -1) {
    MembershipOptions options;
    options.role = role;
    options.wanted_rank = wanted_rank;
    options.scheduler_address = "inproc://scheduler";
    options.num_workers = 2;
    options.num_servers = 1;
    if (role == wire::SERVER) options.endpoints = {"inproc://server"};
    options.host = "alpha";
    options.join_timeout = kLong;
    return std::make_unique<TestNode>(network_, options);
  }
  void JoinAll() {
    nodes_.push_back(Node(wire::SERVER));
    nodes_.push_back(Node(wire::WORKER, 0));
    nodes_.push_back(Node(wire::WORKER, 1));
    nodes_[0]->Listen();
    nodes_[1]->Listen();  // the third node sets its handler late, or never
    std::vector<std::thread> joins;
    for (auto& node : nodes_) {
      joins.emplace_back([&node] {
        const absl::Status joined = node->membership().Join();
        EXPECT_TRUE(joined.ok()) << joined;
      });
    }
    for (std::thread& join : joins) join.join();
  }
  Membership& server() { return nodes_[0]->membership(); }
  Membership& worker(size_t rank) { return nodes_[rank + 1]->membership(); }

  std::shared_ptr<InProcessNetwork> network_ = std::make_shared<InProcessNetwork>();
  std::vector<std::unique_ptr<TestNode>> nodes_;
};

}  // namespace slimps

#endif  // SLIMPS_TESTS_PROTO_NET_MEMBERSHIP_MEMBERSHIP_FIXTURE_H_
