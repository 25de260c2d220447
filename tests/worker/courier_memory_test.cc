// Memory that runs out at any one allocation of Dispatch or of the timer: each item is answered once all the same.
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "proto/base/buffer.h"
#include "proto/base/mutex.h"
#include "proto/net/membership/membership.h"
#include "tests/proto/base/failing_allocations.h"
#include "tests/worker/holding_transport.h"
#include "worker/courier.h"

namespace slimps {
namespace {

constexpr absl::Duration kLong = absl::Seconds(30);  // only a failing test waits so long

class CourierOutOfMemory : public ::testing::Test {
 protected:
  static constexpr size_t kItems = 2;

  std::vector<OutgoingItem> MakeItems() {
    std::vector<OutgoingItem> items;
    for (size_t i = 0; i < kItems; ++i) {
      items.push_back({.item = wire::PushItem(),
                       .payload = Payload::Adopt(AlignedBuffer(64), 64),
                       .key_name = "a key whose name takes memory of its own",
                       .done = [this](const Answer& answer) {
                         MutexLock lock(&mutex_);
                         ++answered_;
                         refused_ += absl::IsResourceExhausted(answer.status);
                         EXPECT_TRUE(absl::IsResourceExhausted(answer.status) ||
                                     absl::IsDeadlineExceeded(answer.status))
                             << answer.status;
                         if (when_answered_) when_answered_();
                         changed_.NotifyAll();
                       }});
    }
    return items;
  }
  bool AwaitAnswered(size_t count) {
    MutexLock lock(&mutex_);
    return changed_.Await(&mutex_, kLong, [&] { return answered_ >= count; });
  }
  size_t answered() {
    MutexLock lock(&mutex_);
    return answered_;
  }
  size_t refused() {
    MutexLock lock(&mutex_);
    return refused_;
  }

  HoldingTransport transport_;
  Membership membership_{&transport_, {.role = wire::WORKER}};
  Mutex mutex_;
  CondVar changed_;
  size_t answered_ = 0;
  size_t refused_ = 0;  // of these: for want of memory
  std::function<void()> when_answered_;
};

TEST_F(CourierOutOfMemory, AnItemIsAskedForAndAnsweredOrNeither) {
  Courier courier(&transport_, &membership_, {PeerId{7}},
                  {.timeout = absl::Milliseconds(500), .retry_interval = absl::Milliseconds(10)});
  size_t asked = 0;
  for (int n = 0;; ++n) {
    SCOPED_TRACE(n);
    std::vector<OutgoingItem> items = MakeItems();
    const size_t sent = transport_.sent();
    const size_t refused_before = refused();
    bool returned = false;
    const bool ran_out = RunsOut(n, [&] {
      courier.Dispatch(0, std::move(items), 0);
      returned = true;
    });
    EXPECT_TRUE(returned);
    asked += kItems;
    if (refused() > refused_before) {
      EXPECT_EQ(refused(), refused_before + kItems) << "all of a message or none";
      // All that is on its way was sent by the timer, item by item, and before.
      for (size_t i = sent; i < transport_.sent(); ++i) {
        EXPECT_EQ(transport_.header(i).push().items_size(), 1);
      }
    }
    if (!ran_out) break;
  }
  EXPECT_GT(refused(), 5 * kItems);
  // Behind everything that the timer may have left.
  courier.Dispatch(0, MakeItems(), 0);
  asked += kItems;
  EXPECT_TRUE(AwaitAnswered(asked));
  EXPECT_EQ(courier.outstanding(), 0u);
  courier.Stop();
  EXPECT_EQ(answered(), asked) << "each once";
}

// The timer's thread has nobody to throw to, and who was not told would wait for ever.
TEST_F(CourierOutOfMemory, TheTimerGoesOnAndForgetsNobody) {
  Courier courier(&transport_, &membership_, {PeerId{7}},
                  {.timeout = absl::Milliseconds(30), .retry_interval = absl::Milliseconds(10)});
  size_t asked = 0;
  int next = 0;
  bool ended = false;
  // On the timer's thread: the others of this round come after this one.
  when_answered_ = [&] {
    if (answered_ % kItems != 1) return;
    ended = !EndFailing() && next > 5;
    FailAllocation(next++);
  };
  for (bool done = false; !done;) {
    courier.Dispatch(0, MakeItems(), 0);
    asked += kItems;
    ASSERT_TRUE(AwaitAnswered(asked)) << next;
    MutexLock lock(&mutex_);
    done = ended;
  }
  EXPECT_GT(refused(), 0u);
  courier.Stop();
  EXPECT_EQ(answered(), asked);
}

}  // namespace
}  // namespace slimps
