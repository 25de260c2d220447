// SPDX-License-Identifier: Apache-2.0
// When a PullMerger sends a pull that is measured, which thread merges an answer, and what travels
// with a push.
#include <atomic>
#include <future>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/worker/courier/holding_transport.h"
#include "worker/pull/pull_merger.h"

namespace slimps {
namespace {

constexpr absl::Duration kLong = absl::Seconds(30);  // only a failing test waits this long

class PullTurnsTest : public ::testing::Test {
 protected:
  void TearDown() override { courier_.FailAll(absl::CancelledError("the test is over")); }

  const TensorPlan* Tensor(const std::string& name, size_t elements) {
    auto tensor = std::make_unique<TensorPlan>(
        TensorPlan{.key = Key(name), .info = {}, .elements = elements, .partitions = {}});
    tensor->partitions.push_back({.server = 0, .offset = 0, .elements = elements});
    return tensors_.emplace_back(std::move(tensor)).get();
  }
  void Make(PullMergerOptions options) {
    merger_ = std::make_unique<PullMerger>(&courier_, std::move(options));
  }
  PullMergerOptions Measuring() {
    PullMergerOptions options;
    options.measures = [](const TensorPlan&, uint64_t) { return true; };
    options.on_measured = [this](const PullMeasurement&) {
      MutexLock lock(&mutex_);
      ++measured_;
      changed_.NotifyAll();
    };
    return options;
  }
  void Pull(const TensorPlan* tensor, std::vector<float>& out) {
    merger_->Submit(
        {.tensor = tensor, .min_version = 1, .out = out, .done = [this](absl::Status status) {
           MutexLock lock(&mutex_);
           EXPECT_TRUE(status.ok()) << status;
           done_by_.push_back(std::this_thread::get_id());
           changed_.NotifyAll();
         }});
  }

  // Answers the only pull of a message, or the pull beside a push, with `value`.
  void Answer(size_t message, float value) {
    const wire::Header sent = transport_.header(message);
    const wire::PullItem asked = sent.has_pull() ? sent.pull().items(0) : sent.push_pull().pull(0);
    transport_.HandOver(message);
    const std::vector<float> values(asked.elements(), value);
    Message reply;
    wire::PullReplyItem* item = reply.header.mutable_pull_reply()->add_items();
    *item->mutable_id() = asked.id();
    item->set_version(asked.min_version());
    item->set_elements(asked.elements());
    item->set_format(wire::RAW_F32);
    item->set_payload_bytes(values.size() * sizeof(float));
    reply.payloads.push_back(Payload::Copy(std::as_bytes(std::span(values))));
    EXPECT_TRUE(courier_.HandleMessage(PeerId{7}, reply));
  }
  bool AwaitDone(size_t count) {
    MutexLock lock(&mutex_);
    return changed_.Await(&mutex_, kLong, [&] { return done_by_.size() >= count; });
  }
  // Waits until the pull thread has no more to do for what came before this call. In each turn of
  // that thread, a measured pull leaves after the other work, so the second call ends the first
  // turn for certain.
  void AwaitTwoTurns() {
    for (int turn = 0; turn < 2; ++turn) {
      std::promise<void> told;
      merger_->SubmitLater(
          {.tensor = tensors_.front().get(), .out = {}, .done = [&told](const absl::Status&) {
             told.set_value();
           }})(absl::CancelledError("it only marks a turn"));
      ASSERT_EQ(told.get_future().wait_for(absl::ToChronoSeconds(kLong)),
                std::future_status::ready);
    }
  }
  bool AwaitMeasured(int count) {
    MutexLock lock(&mutex_);
    return changed_.Await(&mutex_, kLong, [&] { return measured_ >= count; });
  }

  std::vector<std::unique_ptr<TensorPlan>> tensors_;
  HoldingTransport transport_;
  Membership membership_{&transport_, {.role = wire::WORKER}};
  Courier courier_{&transport_, &membership_, {PeerId{7}}, {.timeout = kLong}};
  Mutex mutex_;
  CondVar changed_;
  std::vector<std::thread::id> done_by_;
  int measured_ = 0;
  std::unique_ptr<PullMerger> merger_;
};

TEST_F(PullTurnsTest, MeasuredPullsGoOneByOneWhenNoOthersAreUnderWay) {
  Make(Measuring());
  std::vector<float> a(4), b(4);
  Pull(Tensor("a", 4), a);
  ASSERT_TRUE(transport_.AwaitSent(1));
  Pull(Tensor("b", 4), b);
  ASSERT_TRUE(transport_.AwaitSent(2));
  Answer(0, 1);
  ASSERT_TRUE(AwaitDone(1));
  AwaitTwoTurns();
  EXPECT_EQ(transport_.sent(), 2u) << "b is still under way";
  Answer(1, 2);
  ASSERT_TRUE(AwaitDone(2));
  ASSERT_TRUE(transport_.AwaitSent(3));
  AwaitTwoTurns();
  EXPECT_EQ(transport_.sent(), 3u) << "one at a time";
  Answer(2, 1);
  ASSERT_TRUE(AwaitMeasured(1));
  ASSERT_TRUE(transport_.AwaitSent(4));
  Answer(3, 2);
  ASSERT_TRUE(AwaitMeasured(2));
  EXPECT_EQ(a, std::vector<float>(4, 1));
  EXPECT_EQ(b, std::vector<float>(4, 2));
}

TEST_F(PullTurnsTest, WhoWaitsForMeasurementsNeedNotWaitForOtherPulls) {
  Make(Measuring());
  std::vector<float> a(4), b(4);
  Pull(Tensor("a", 4), a);
  ASSERT_TRUE(transport_.AwaitSent(1));
  // This pull is never answered: its round waits for a push of the thread that waits here.
  merger_->Submit(
      {.tensor = Tensor("b", 4), .min_version = 1, .out = b, .done = [](const absl::Status&) {}});
  ASSERT_TRUE(transport_.AwaitSent(2));
  Answer(0, 1);
  ASSERT_TRUE(AwaitDone(1));
  auto waiter = std::async(std::launch::async, [this] { merger_->AwaitMeasured(kLong); });
  ASSERT_TRUE(transport_.AwaitSent(3));
  EXPECT_EQ(waiter.wait_for(std::chrono::milliseconds(20)), std::future_status::timeout);
  Answer(2, 1);
  waiter.get();
  EXPECT_EQ(measured_, 1);
}

TEST_F(PullTurnsTest, WhoWaitsForMeasurementsThatNeverComeGoesOnInTheEnd) {
  Make(Measuring());
  std::vector<float> a(4);
  Pull(Tensor("a", 4), a);
  ASSERT_TRUE(transport_.AwaitSent(1));
  Answer(0, 1);
  ASSERT_TRUE(transport_.AwaitSent(2));
  merger_->AwaitMeasured(absl::Milliseconds(20));
  Answer(1, 1);  // measured all the same
  EXPECT_TRUE(AwaitMeasured(1));
}

TEST_F(PullTurnsTest, NobodyWaitsWhereNothingIsMeasured) {
  Make({});
  merger_->AwaitMeasured(absl::InfiniteDuration());
}

TEST_F(PullTurnsTest, AnswersBeyondTheBoundAreMergedByWhoBringsThem) {
  PullMergerOptions options;
  options.max_bytes_waiting = 20;
  Make(std::move(options));
  // The pull thread is held up in the first answer's callback.
  std::promise<void> entered, go;
  std::vector<float> first(4), second(4), third(4);
  merger_->Submit(
      {.tensor = Tensor("a", 4), .min_version = 1, .out = first, .done = [&](absl::Status) {
         entered.set_value();
         go.get_future().wait();
       }});
  ASSERT_TRUE(transport_.AwaitSent(1));
  Pull(Tensor("b", 4), second);
  ASSERT_TRUE(transport_.AwaitSent(2));
  Pull(Tensor("c", 4), third);
  ASSERT_TRUE(transport_.AwaitSent(3));
  Answer(0, 1);
  entered.get_future().wait();
  Answer(1, 2);  // 16 bytes wait
  EXPECT_EQ(second, std::vector<float>(4, 0));
  Answer(2, 3);  // 16 more would not fit
  EXPECT_EQ(third, std::vector<float>(4, 3));
  go.set_value();
  ASSERT_TRUE(AwaitDone(2));
  EXPECT_EQ(second, std::vector<float>(4, 2));
  EXPECT_EQ(merger_->totals().payload_bytes, 3 * 4 * sizeof(float));
  for (const std::thread::id by : done_by_) {
    EXPECT_NE(by, std::this_thread::get_id()) << "callbacks are the pull thread's";
  }
}

TEST_F(PullTurnsTest, APushAndItsPullTravelInOneMessageAndNeedNoThread) {
  Make({});
  const TensorPlan* tensor = Tensor("w", 4);
  std::vector<float> out(4);
  OutgoingItem push{.item = wire::PushItem(),
                    .payload = {},
                    .key_name = "s:w",
                    .done = [](const slimps::Answer&) {}};
  bool done = false;
  merger_->SubmitWithPush({.tensor = tensor,
                           .min_version = 5,
                           .out = out,
                           .done =
                               [&](absl::Status status) {
                                 EXPECT_TRUE(status.ok()) << status;
                                 done = true;
                               }},
                          std::move(push));
  ASSERT_EQ(transport_.sent(), 1u) << "by the time it returns";
  const wire::Header sent = transport_.header(0);
  ASSERT_TRUE(sent.has_push_pull());
  EXPECT_EQ(sent.push_pull().push_size(), 1);
  EXPECT_EQ(sent.push_pull().pull(0).min_version(), 5u);
  Answer(0, 9);
  EXPECT_TRUE(done) << "by who brought the answer";
  EXPECT_EQ(out, std::vector<float>(4, 9));
}

}  // namespace
}  // namespace slimps
