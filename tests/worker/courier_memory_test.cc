// Memory that runs out at any one allocation of Dispatch: what was not asked for is forgotten, and the timer goes on.
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
                         EXPECT_TRUE(absl::IsDeadlineExceeded(answer.status)) << answer.status;
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

  HoldingTransport transport_;
  Membership membership_{&transport_, {.role = wire::WORKER}};
  Mutex mutex_;
  CondVar changed_;
  size_t answered_ = 0;
};

TEST_F(CourierOutOfMemory, AnItemIsAskedForAndAnsweredOrNeither) {
  Courier courier(&transport_, &membership_, {PeerId{7}},
                  {.timeout = absl::Milliseconds(500), .retry_interval = absl::Milliseconds(10)});
  size_t asked = 0;
  int refused = 0;
  for (int n = 0;; ++n) {
    SCOPED_TRACE(n);
    std::vector<OutgoingItem> items = MakeItems();
    const size_t sent = transport_.sent();
    bool dispatched = false;
    const bool ran_out = RunsOut(n, [&] {
      courier.Dispatch(0, std::move(items), 0);
      dispatched = true;
    });
    if (dispatched) {
      asked += kItems;
    } else {
      ++refused;
      // All that is on its way was sent by the timer, item by item, and before.
      for (size_t i = sent; i < transport_.sent(); ++i) {
        EXPECT_EQ(transport_.header(i).push().items_size(), 1);
      }
    }
    if (!ran_out) break;
  }
  EXPECT_GT(refused, 5);
  // Behind everything that the timer may have left.
  courier.Dispatch(0, MakeItems(), 0);
  asked += kItems;
  EXPECT_TRUE(AwaitAnswered(asked));
  EXPECT_EQ(courier.outstanding(), 0u);
  courier.Stop();
  EXPECT_EQ(answered(), asked) << "no answer for what was not asked for";
}

}  // namespace
}  // namespace slimps
