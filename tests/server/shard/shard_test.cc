// SPDX-License-Identifier: Apache-2.0
// The thread around ShardState: which thread handles an item, and which answers travel together.
#include "server/shard/shard.h"

#include <atomic>
#include <functional>
#include <memory>
#include <new>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/base/clock.h"
#include "proto/base/mutex.h"
#include "proto/status_proto.h"
#include "tests/proto/base/wait_until.h"
#include "tests/server/round/server_test_util.h"

namespace slimps {
namespace {

constexpr absl::Duration kLong = absl::Seconds(30);  // only a failing test waits this long
constexpr size_t kLargeElements = Shard::kSmallBytes / sizeof(float) + 1;

class ShardTest : public ::testing::Test {
 protected:
  struct Sent {
    Reply reply;
    std::thread::id by;
  };

  static ShardItems From(uint32_t worker) {
    ShardItems items;
    items.origin = {.peer = PeerId{worker + 100}, .worker = worker, .request_id = 0};
    return items;
  }
  void Init(const std::string& name, size_t elements) {
    ShardItems items = From(0);
    InitWork init;
    init.id = MakeId(name, 0, 1);
    init.spec.key = Key(name).id();
    init.spec.name = Key(name).typed_name();
    init.spec.elements = elements;
    init.spec.num_workers = 1;
    init.value = Raw(std::vector<float>(elements, 0.0f));
    items.inits.push_back(std::move(init));
    ASSERT_TRUE(shard_->Post(&items).ok());
    ASSERT_TRUE(Next().reply.message.header.has_init_reply());
  }
  static ShardItems PushOf(const std::string& name, uint64_t round, size_t elements) {
    ShardItems items = From(0);
    Message message;
    PushWork push;
    FillPush(&message, &push.item,
             {.name = name,
              .round = round,
              .values = std::vector<float>(elements, 1.0f),
              .ticket = round});
    push.payload = message.payloads[0];
    items.pushes.push_back(std::move(push));
    return items;
  }
  ShardItems PullOf(const std::string& name, uint64_t version, size_t elements,
                    absl::Duration wait = kLong) {
    ShardItems items = From(0);
    PullWork pull;
    FillPull(&pull.item,
             {.name = name, .min_version = version, .elements = elements, .ticket = version + 1});
    pull.deadline = clock_.Now() + wait;
    items.pulls.push_back(std::move(pull));
    return items;
  }
  void Post(ShardItems items) {
    const absl::Status posted = shard_->Post(&items);
    ASSERT_TRUE(posted.ok()) << posted;
  }

  // Keeps the shard's thread busy until the caller calls the returned function.
  std::function<void()> Occupy() {
    struct Gate {
      Mutex mutex;
      CondVar changed;
      bool entered = false, open = false;
    };
    auto gate = std::make_shared<Gate>();
    shard_->PostOwnControl([gate](ShardState&) {
      MutexLock lock(&gate->mutex);
      gate->entered = true;
      gate->changed.NotifyAll();
      gate->changed.Await(&gate->mutex, kLong, [&] { return gate->open; });
    });
    MutexLock lock(&gate->mutex);
    EXPECT_TRUE(gate->changed.Await(&gate->mutex, kLong, [&] { return gate->entered; }));
    return [gate] {
      MutexLock open(&gate->mutex);
      gate->open = true;
      gate->changed.NotifyAll();
    };
  }
  Sent Next() {
    MutexLock lock(&mutex_);
    if (!changed_.Await(&mutex_, kLong, [this] { return read_ < sent_.size(); })) return {};
    return sent_[read_++];
  }

  // Returns the status that an answer gives to its only item.
  static absl::Status StatusOf(const Sent& sent) {
    const wire::Header& header = sent.reply.message.header;
    if (header.push_reply().items_size() == 1) {
      return FromStatusProto(header.push_reply().items(0).status());
    }
    if (header.pull_reply().items_size() == 1) {
      return FromStatusProto(header.pull_reply().items(0).status());
    }
    return absl::UnknownError("no answer to one push or one pull");
  }

  RealClock clock_;
  std::function<void()> before_send_;  // set while nothing is sent
  Mutex mutex_;
  CondVar changed_;
  std::vector<Sent> sent_;
  size_t read_ = 0;
  std::unique_ptr<Shard> shard_ = std::make_unique<Shard>(
      ShardOptions{}, std::make_unique<ShardState>(MakeOptimizer({}), &clock_), &clock_,
      [this](Reply reply) {
        if (before_send_) before_send_();
        MutexLock lock(&mutex_);
        sent_.push_back({std::move(reply), std::this_thread::get_id()});
        changed_.NotifyAll();
      });
};

TEST_F(ShardTest, SmallItemsThatFindItIdleAreHandledByWhoPostsThem) {
  Init("w", 2);
  // The shard's thread gives the state back shortly after it has answered. It handles items that
  // come before that as well, so the two threads may go in step for many rounds.
  for (uint64_t round = 1; round <= 10000; ++round) {
    Post(PullOf("w", round, 2));
    Post(PushOf("w", round, 2));
    Sent pulled = Next();
    // The shard's thread may have acknowledged the push before it stepped.
    if (pulled.reply.message.header.has_push_reply()) pulled = Next();
    ASSERT_EQ(pulled.reply.message.header.pull_reply().items(0).version(), round);
    if (pulled.by == std::this_thread::get_id()) return;
    std::this_thread::yield();
  }
  FAIL() << "a thread hop for each of 10000 rounds";
}

TEST_F(ShardTest, LargeItemsAreHandledOnItsOwnThread) {
  Init("w", kLargeElements);
  for (uint64_t round = 1; round <= 3; ++round) {
    Post(PushOf("w", round, kLargeElements));
    EXPECT_NE(Next().by, std::this_thread::get_id());
  }
}

TEST_F(ShardTest, LargePullsAreAnsweredOnItsOwnThreadThoughTheyCarryNothing) {
  Init("w", kLargeElements);
  Post(PullOf("w", 0, kLargeElements));
  EXPECT_NE(Next().by, std::this_thread::get_id());
}

TEST_F(ShardTest, WhatComesWhileItIsBusyIsAnsweredInOneMessage) {
  for (const char* name : {"a", "b", "c"}) Init(name, 1);
  const auto release = Occupy();
  for (const char* name : {"a", "b", "c"}) Post(PullOf(name, 1, 1));
  for (const char* name : {"a", "b", "c"}) Post(PushOf(name, 1, 1));
  release();
  const Message pulled = Next().reply.message;
  EXPECT_EQ(pulled.header.pull_reply().pushed_size(), 3);
  EXPECT_EQ(pulled.header.pull_reply().items_size(), 3);
  EXPECT_EQ(pulled.payloads.size(), 3u);
}

TEST_F(ShardTest, RoundsOfHigherPriorityAreAppliedFirst) {
  const std::vector<std::pair<std::string, int>> tensors = {
      {"low", -5}, {"first", 3}, {"second", 3}, {"high", 7}};
  for (const auto& [name, priority] : tensors) Init(name, kLargeElements);
  const auto release = Occupy();
  for (const auto& [name, priority] : tensors) {
    Post(PullOf(name, 1, kLargeElements));
    ShardItems push = PushOf(name, 1, kLargeElements);
    push.pushes[0].item.set_priority(priority);
    Post(std::move(push));
  }
  release();
  EXPECT_EQ(Next().reply.message.header.push_reply().items_size(), 4);
  for (const char* name : {"high", "first", "second", "low"}) {
    const Message pulled = Next().reply.message;
    ASSERT_EQ(pulled.header.pull_reply().items_size(), 1);
    EXPECT_EQ(pulled.header.pull_reply().items(0).id().key(), Key(name).id()) << name;
  }
}

TEST_F(ShardTest, AnEarlierRoundIsAppliedBeforeALaterOneOfHigherPriority) {
  for (const char* name : {"front", "back"}) Init(name, kLargeElements);
  Post(PullOf("front", 1, kLargeElements));
  Post(PushOf("front", 1, kLargeElements));
  for (int i = 0; i < 2; ++i) Next();
  const auto release = Occupy();
  for (const char* name : {"front", "back"}) {
    const uint64_t round = std::string(name) == "front" ? 2 : 1;
    Post(PullOf(name, round, kLargeElements));
    ShardItems push = PushOf(name, round, kLargeElements);
    push.pushes[0].item.set_priority(round == 2 ? 5 : -5);
    Post(std::move(push));
  }
  release();
  EXPECT_EQ(Next().reply.message.header.push_reply().items_size(), 2);
  for (const char* name : {"back", "front"}) {
    const Message pulled = Next().reply.message;
    ASSERT_EQ(pulled.header.pull_reply().items_size(), 1);
    EXPECT_EQ(pulled.header.pull_reply().items(0).id().key(), Key(name).id()) << name;
  }
}

TEST_F(ShardTest, APullThatWaitsForNoOneExpires) {
  Init("w", 1);
  Post(PullOf("w", 1, 1, absl::Milliseconds(30)));
  const Message answer = Next().reply.message;
  ASSERT_EQ(answer.header.pull_reply().items_size(), 1);
  EXPECT_EQ(FromStatusProto(answer.header.pull_reply().items(0).status()).code(),
            absl::StatusCode::kDeadlineExceeded);
}

TEST_F(ShardTest, APullExpiresThoughItsTimeComesWhileAnotherThreadHasTheState) {
  Init("w", 1);
  static constexpr absl::Duration kWait = absl::Milliseconds(100);
  for (int attempt = 0; attempt < 20; ++attempt) {
    // A pull that is answered here finds the shard's thread idle.
    ASSERT_TRUE(WaitUntil([this] {
      Post(PullOf("w", 0, 1));
      return Next().by == std::this_thread::get_id();
    }));
    // The thread sleeps until the deadline on the machine's clock, and then until it is woken.
    const SteadyTime deadline = clock_.Now() + kWait;
    before_send_ = [this, deadline, here = std::this_thread::get_id()] {
      if (std::this_thread::get_id() != here) return;
      EXPECT_TRUE(WaitUntil([&] { return clock_.Now() > deadline + kWait; }));
    };
    Post(PullOf("w", 1, 1, kWait));
    Post(PullOf("w", 0, 1));
    const bool here = Next().by == std::this_thread::get_id();
    const Message answer = Next().reply.message;
    before_send_ = nullptr;
    ASSERT_EQ(answer.header.pull_reply().items_size(), 1) << "nobody woke the thread";
    if (!here) continue;  // the shard's thread had the state itself
    EXPECT_EQ(FromStatusProto(answer.header.pull_reply().items(0).status()).code(),
              absl::StatusCode::kDeadlineExceeded);
    return;
  }
  FAIL() << "a thread hop in each of 20 attempts";
}

// A large complete round was left to the shard's thread. Small items must not take the state from
// it again and again.
TEST_F(ShardTest, NobodyPassesALargeRoundThatIsComplete) {
  Init("large", kLargeElements);
  Init("small", 1);
  for (uint64_t round = 1; round <= 300; ++round) {
    std::thread poster([&] {
      for (int i = 0; i < 50; ++i) Post(PullOf("small", 0, 1));
    });
    Post(PullOf("large", round, kLargeElements));
    Post(PushOf("large", round, kLargeElements));
    std::thread::id shard;
    for (bool applied = false; !applied;) {
      const Sent sent = Next();
      const wire::Header& header = sent.reply.message.header;
      ASSERT_NE(header.body_case(), wire::Header::BODY_NOT_SET) << "nothing more was sent";
      if (header.has_push_reply() || header.pull_reply().pushed_size() > 0) shard = sent.by;
      if (shard != std::thread::id()) {
        EXPECT_EQ(sent.by, shard) << round;
      }
      for (const auto& item : header.pull_reply().items()) applied |= item.version() > 0;
    }
    poster.join();
  }
}

TEST_F(ShardTest, CountsTooLargeToAddUpAreNotTakenForSmall) {
  Init("w", 1);
  ShardItems items = PullOf("w", 0, 1);
  items.pulls[0].item.set_elements(~uint64_t{0});
  items.pulls.push_back(items.pulls[0]);
  items.pulls[1].item.set_elements(1);
  Post(std::move(items));
  const Sent answer = Next();
  EXPECT_NE(answer.by, std::this_thread::get_id());
  EXPECT_EQ(answer.reply.message.header.pull_reply().items_size(), 2);
}

TEST_F(ShardTest, StopFinishesWhatWasAcceptedAndAnswersWhoWaits) {
  Init("w", kLargeElements);
  Init("v", 1);
  Post(PullOf("v", 1, 1));
  const auto release = Occupy();
  Post(PullOf("w", 1, kLargeElements));
  Post(PushOf("w", 1, kLargeElements));
  std::thread stopper([this] { shard_->Stop(); });
  release();
  stopper.join();
  bool applied = false, unavailable = false;
  MutexLock lock(&mutex_);
  for (size_t i = read_; i < sent_.size(); ++i) {
    for (const auto& item : sent_[i].reply.message.header.pull_reply().items()) {
      applied |= item.id().key() == Key("w").id() && item.version() == 1;
      unavailable |= item.id().key() == Key("v").id() &&
                     FromStatusProto(item.status()).code() == absl::StatusCode::kUnavailable;
    }
  }
  EXPECT_TRUE(applied);
  EXPECT_TRUE(unavailable);
  ShardItems late = PullOf("w", 1, 1);
  EXPECT_TRUE(absl::IsUnavailable(shard_->Post(&late)));
}

// Several threads post at once, as the I/O thread and the shard's thread do. No item is lost and
// none is counted twice.
TEST_F(ShardTest, EveryItemIsAnsweredWhoeverHandlesIt) {
  constexpr uint64_t kRounds = 300;
  Init("small", 4);
  Init("large", kLargeElements);
  std::thread poster([&] {
    for (uint64_t round = 1; round <= kRounds; ++round) {
      Post(PushOf("small", round, 4));
      Post(PullOf("small", round, 4));
      if (round % 30 == 0) {
        Post(PushOf("large", round / 30, kLargeElements));
        Post(PullOf("large", round / 30, kLargeElements));
      }
    }
  });
  uint64_t pushes = 0, pulls = 0;
  while (pushes < kRounds + kRounds / 30 || pulls < kRounds + kRounds / 30) {
    const Message message = Next().reply.message;
    ASSERT_TRUE(message.header.has_push_reply() || message.header.has_pull_reply());
    for (const auto& items :
         {message.header.push_reply().items(), message.header.pull_reply().pushed()}) {
      for (const auto& item : items) {
        EXPECT_EQ(item.status().code(), 0u) << item.status().message();
        ++pushes;
      }
    }
    for (const auto& item : message.header.pull_reply().items()) {
      EXPECT_EQ(item.status().code(), 0u) << item.status().message();
      ++pulls;
    }
  }
  poster.join();
  EXPECT_EQ(pushes, kRounds + kRounds / 30);
  EXPECT_EQ(pulls, kRounds + kRounds / 30);
}

}  // namespace
}  // namespace slimps
