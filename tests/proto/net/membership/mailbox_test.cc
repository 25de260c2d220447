// SPDX-License-Identifier: Apache-2.0
// A scheduler whose I/O thread is kept from its mailbox while time passes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <thread>

#include "tests/proto/base/moved_clock.h"
#include "tests/proto/net/membership/membership_fixture.h"

namespace slimps {
namespace {

using ::testing::HasSubstr;

// While closed, it holds the I/O thread inside the delivery of the next message. Thread-safe.
class Gate final : public MessageSink {
 public:
  explicit Gate(MessageSink* sink) : sink_(sink) {}
  void OnMessage(PeerId from, Message message) override {
    {
      MutexLock lock(&mutex_);
      waits_ = closed_;
      changed_.NotifyAll();
      while (closed_) changed_.Wait(&mutex_);
      waits_ = false;
    }
    sink_->OnMessage(from, std::move(message));
  }
  void OnBadFrame(PeerId from, const absl::Status& why) override { sink_->OnBadFrame(from, why); }
  void OnUndeliverable(PeerId to, const absl::Status& why) override {
    sink_->OnUndeliverable(to, why);
  }

  // Closes the gate and waits until the I/O thread is held at it. Returns false on a timeout.
  bool Close() {
    MutexLock lock(&mutex_);
    closed_ = true;
    return changed_.Await(&mutex_, kLong,
                          [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return waits_; });
  }
  void Open() {
    MutexLock lock(&mutex_);
    closed_ = false;
    changed_.NotifyAll();
  }

 private:
  MessageSink* const sink_;
  Mutex mutex_;
  CondVar changed_;
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;
  bool waits_ ABSL_GUARDED_BY(mutex_) = false;
};

class MailboxTest : public MembershipTest {
 protected:
  MailboxTest()
      : transport_(network_, OnMovedClock()),
        service_(&transport_, Scheduler(), &clock_),
        gate_(&service_) {
    EXPECT_TRUE(transport_.Bind("inproc://scheduler").ok());
    EXPECT_TRUE(transport_.Start(&gate_).ok());
  }
  ~MailboxTest() override {
    gate_.Open();
    transport_.Stop();
  }

  TransportOptions OnMovedClock() const {
    TransportOptions options;
    options.clock = &clock_;
    options.linger = absl::ZeroDuration();
    return options;
  }

  // Ticks until `done()` is true. Returns false if that does not happen within kLong.
  template <typename Done>
  bool TickUntil(Done done) {
    const SteadyTime deadline = MachineClock()->Now() + kLong;
    while (!done()) {
      if (MachineClock()->Now() > deadline) return false;
      service_.Tick();
      std::this_thread::yield();
    }
    return true;
  }

  // Waits until each node has sent two more messages, which are heartbeats. Returns false on a
  // timeout.
  bool AllBeat() {
    std::vector<uint64_t> sent;
    for (auto& node : nodes_) sent.push_back(node->messages_sent());
    const SteadyTime deadline = MachineClock()->Now() + kLong;
    for (size_t i = 0; i < nodes_.size(); ++i) {
      while (nodes_[i]->messages_sent() < sent[i] + 2) {
        if (MachineClock()->Now() > deadline) return false;
        std::this_thread::yield();
      }
    }
    return true;
  }

  MovedClock clock_;
  InProcessTransport transport_;
  SchedulerService service_;
  Gate gate_;
};

TEST_F(MailboxTest, NobodyIsDeadWhoseHeartbeatLiesInTheMailbox) {
  JoinAll();
  ASSERT_TRUE(gate_.Close());
  clock_.Advance(Scheduler().heartbeat_timeout + absl::Seconds(1));
  ASSERT_TRUE(AllBeat());
  for (int i = 0; i < 10; ++i) service_.Tick();
  EXPECT_TRUE(service_.result().ok()) << service_.result();
  gate_.Open();
  EXPECT_TRUE(TickUntil([this] { return transport_.DeliveredUntil() >= clock_.Now(); }));
  EXPECT_TRUE(service_.result().ok()) << service_.result();
}

TEST_F(MailboxTest, WhoIsSilentAfterItWasDrainedIsDead) {
  JoinAll();
  nodes_[2]->Vanish();
  clock_.Advance(absl::Milliseconds(1));
  ASSERT_TRUE(TickUntil([this] { return transport_.DeliveredUntil() >= clock_.Now(); }));
  ASSERT_TRUE(gate_.Close());  // holds the I/O thread in a message of another node
  clock_.Advance(Scheduler().heartbeat_timeout + absl::Seconds(1));
  nodes_.pop_back();
  ASSERT_TRUE(AllBeat());
  gate_.Open();
  EXPECT_TRUE(TickUntil([this] { return !service_.result().ok(); }));
  EXPECT_THAT(std::string(service_.result().message()), HasSubstr("worker 1"));
}

}  // namespace
}  // namespace slimps
