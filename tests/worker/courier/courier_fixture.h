// SPDX-License-Identifier: Apache-2.0
// A courier whose network stands still and whose clock the test moves. The test plays its server.
#ifndef SLIMPS_TESTS_WORKER_COURIER_COURIER_FIXTURE_H_
#define SLIMPS_TESTS_WORKER_COURIER_COURIER_FIXTURE_H_

#include <memory>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "proto/base/mutex.h"
#include "proto/status_proto.h"
#include "tests/proto/base/moved_clock.h"
#include "tests/worker/courier/holding_transport.h"
#include "worker/courier/courier.h"

namespace slimps {

inline constexpr absl::Duration kLong = absl::Seconds(30);  // only a failing test waits this long
inline constexpr absl::Duration kForever = absl::Hours(1);  // no test moves the clock that far
inline constexpr absl::Duration kRetry = absl::Milliseconds(10);
inline constexpr PeerId kServer{7};

class CourierTest : public ::testing::Test {
 protected:
  std::unique_ptr<Courier> MakeCourier(absl::Duration timeout,
                                       absl::Duration retry_interval = kRetry) {
    return std::make_unique<Courier>(
        &transport_, &membership_, std::vector<PeerId>{kServer},
        CourierOptions{.timeout = timeout, .retry_interval = retry_interval, .clock = &clock_});
  }

  // Waits until the timer of the only courier has looked at all items at the present time.
  void AwaitTimer() { ASSERT_TRUE(clock_.AwaitReadings(2)); }

  // Lets `time` pass, and the timer act on it.
  void Pass(absl::Duration time) {
    clock_.Advance(time);
    AwaitTimer();
  }

  // Lets `server` answer an item that this courier never sent.
  static void Talk(Courier* courier, PeerId server) {
    Message reply;
    reply.header.mutable_push_reply()->add_items()->mutable_id()->set_ticket(999);
    EXPECT_TRUE(courier->HandleMessage(server, reply));
  }

  // Lets `time` pass, in which `server` talks every `interval`.
  void Chatter(Courier* courier, PeerId server, absl::Duration time, absl::Duration interval) {
    for (absl::Duration passed; passed < time; passed += interval) {
      Talk(courier, server);
      Pass(interval);
    }
  }
  void Push(Courier* courier) { Dispatch(courier, wire::PushItem()); }
  void Pull(Courier* courier) { Dispatch(courier, wire::PullItem()); }
  template <typename Item>
  void Dispatch(Courier* courier, Item item) {
    std::vector<OutgoingItem> items;
    items.push_back({.item = std::move(item),
                     .payload = {},
                     .key_name = "s:w",
                     .done = [this](const Answer& answer) {
                       MutexLock lock(&mutex_);
                       answers_.push_back(answer.status);
                       round_trips_.push_back(answer.round_trip);
                       changed_.NotifyAll();
                     }});
    courier->Dispatch(0, std::move(items), 0);
  }
  static void AnswerPush(Courier* courier, const absl::Status& status) {
    Message reply;
    wire::ItemStatus* item = reply.header.mutable_push_reply()->add_items();
    item->mutable_id()->set_ticket(1);
    *item->mutable_status() = ToStatusProto(status);
    EXPECT_TRUE(courier->HandleMessage(kServer, reply));
  }
  static void AnswerPull(Courier* courier, const absl::Status& status) {
    Message reply;
    wire::PullReplyItem* item = reply.header.mutable_pull_reply()->add_items();
    item->mutable_id()->set_ticket(1);
    *item->mutable_status() = ToStatusProto(status);
    EXPECT_TRUE(courier->HandleMessage(kServer, reply));
  }
  std::vector<absl::Status> AwaitAnswer() {
    MutexLock lock(&mutex_);
    changed_.Await(&mutex_, kLong, [this] { return !answers_.empty(); });
    return answers_;
  }
  bool answered() {
    MutexLock lock(&mutex_);
    return !answers_.empty();
  }

  MovedClock clock_;
  HoldingTransport transport_;
  Membership membership_{&transport_, {.role = wire::WORKER}};
  Mutex mutex_;
  CondVar changed_;
  std::vector<absl::Status> answers_;
  std::vector<absl::Duration> round_trips_;
};

}  // namespace slimps

#endif  // SLIMPS_TESTS_WORKER_COURIER_COURIER_FIXTURE_H_
