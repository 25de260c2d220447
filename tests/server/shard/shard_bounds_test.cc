// SPDX-License-Identifier: Apache-2.0
#include <memory>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/base/clock.h"
#include "proto/base/mutex.h"
#include "server/round/optimizer.h"
#include "server/shard/shard.h"
#include "tests/server/round/server_test_util.h"

namespace slimps {
namespace {

using ::testing::HasSubstr;

constexpr absl::Duration kLong = absl::Seconds(30);  // only a failing test waits this long

class Gate final {
 public:
  void Open() {
    MutexLock lock(&mutex_);
    open_ = true;
    changed_.NotifyAll();
  }
  bool Await() {
    MutexLock lock(&mutex_);
    return changed_.Await(&mutex_, kLong, [this] { return open_; });
  }

 private:
  Mutex mutex_;
  CondVar changed_;
  bool open_ = false;
};

// A shard whose thread the test can hold up.
class ShardBoundsTest : public ::testing::Test {
 protected:
  void Start(const ShardOptions& options) {
    auto state =
        std::make_unique<ShardState>(Optimizer::Create(wire::OptimizerSpec()).value(), &clock_);
    shard_ = std::make_unique<Shard>(options, std::move(state), &clock_, [](const Reply&) {});
  }
  void Hold() {
    shard_->PostOwnControl([this](ShardState&) {
      held_.Open();
      release_.Await();
    });
    ASSERT_TRUE(held_.Await());
  }
  void Release() { release_.Open(); }

  // Returns after everything posted before has run.
  void Settle() {
    Gate done;
    shard_->PostOwnControl([&done](ShardState&) { done.Open(); });
    ASSERT_TRUE(done.Await());
  }
  Shard::Control Count() {
    return [this](ShardState&) { ++ran_; };
  }
  static ShardItems Push(size_t elements) {
    ShardItems items;
    Message message;
    PushWork& push = items.pushes.emplace_back();
    FillPush(&message, &push.item, {.values = std::vector<float>(elements)});
    if (elements > 0) push.payload = message.payloads.at(0);
    return items;
  }
  absl::Status Post(ShardItems items) { return shard_->Post(&items); }

  RealClock clock_;
  Gate held_, release_;
  int ran_ = 0;  // the shard thread's; read it after Settle
  std::unique_ptr<Shard> shard_;
};

TEST_F(ShardBoundsTest, AStormOfControlMessagesIsRefusedAndRunsToItsBoundOnly) {
  Start({.max_controls = 3});
  Hold();
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(shard_->PostControl(Count()).ok());
  for (int i = 0; i < 100; ++i) {
    const absl::Status status = shard_->PostControl(Count());
    EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
    EXPECT_THAT(status.ToString(), HasSubstr("3 control messages of at most 3"));
  }
  Release();
  Settle();
  EXPECT_EQ(ran_, 3);
  EXPECT_TRUE(shard_->PostControl(Count()).ok()) << "there is room again";
  Settle();
  EXPECT_EQ(ran_, 4);
}

TEST_F(ShardBoundsTest, AStormOfControlMessagesShutsNoItemsOutNorOurOwn) {
  Start({.max_mailbox_entries = 5, .max_controls = 2});
  Hold();
  while (shard_->PostControl(Count()).ok()) {
  }
  EXPECT_TRUE(Post(Push(1)).ok());
  for (int i = 0; i < 10; ++i) shard_->PostOwnControl(Count());
  Release();
  Settle();
  EXPECT_EQ(ran_, 12);
}

TEST_F(ShardBoundsTest, ItemsAreBoundedByNumberAndByBytes) {
  Start({.max_mailbox_entries = 2, .max_mailbox_bytes = 100});
  Hold();
  EXPECT_EQ(Post(Push(26)).code(), absl::StatusCode::kResourceExhausted) << "104 bytes";
  EXPECT_TRUE(Post(Push(24)).ok());
  const absl::Status bytes = Post(Push(2));
  EXPECT_EQ(bytes.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(bytes.ToString(), HasSubstr("96 bytes of at most 100"));
  EXPECT_TRUE(Post(Push(1)).ok());
  EXPECT_THAT(Post(Push(0)).ToString(), HasSubstr("2 messages of at most 2"));
  Release();
  Settle();
  EXPECT_TRUE(Post(Push(25)).ok()) << "what was handled counts no more";
}

TEST_F(ShardBoundsTest, WhatIsRefusedStaysTheCallers) {
  Start({.max_mailbox_entries = 0});
  ShardItems items = Push(1);
  EXPECT_FALSE(shard_->Post(&items).ok());
  EXPECT_EQ(items.pushes.size(), 1u);
}

TEST_F(ShardBoundsTest, AfterStopEverythingIsUnavailable) {
  Start({});
  Hold();
  EXPECT_TRUE(shard_->PostControl(Count()).ok());
  Release();
  shard_->Stop();
  EXPECT_EQ(ran_, 1) << "what was accepted is finished";
  EXPECT_EQ(shard_->PostControl(Count()).code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(Post(Push(1)).code(), absl::StatusCode::kUnavailable);
  shard_->PostOwnControl(Count());
  shard_->Stop();
  EXPECT_EQ(ran_, 1);
}

TEST_F(ShardBoundsTest, AfterStopTheReasonIsTold) {
  Start({});
  shard_->Stop(absl::AbortedError("worker 1 failed: disk full"));
  shard_->Stop(absl::InternalError("later"));
  EXPECT_EQ(Post(Push(1)), absl::AbortedError("worker 1 failed: disk full"));
  EXPECT_EQ(shard_->PostControl(Count()), absl::AbortedError("worker 1 failed: disk full"));
}

}  // namespace
}  // namespace slimps
