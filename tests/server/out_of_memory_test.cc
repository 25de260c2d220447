// Memory that runs out at any one allocation while items are handled: the worker sends again what was not answered, and
// all goes on as if nothing had been.
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "proto/base/clock.h"
#include "proto/frame.h"
#include "proto/limits.h"
#include "server/change_codecs.h"
#include "server/partition.h"
#include "server/reply_outbox.h"
#include "tests/proto/base/failing_allocations.h"
#include "tests/server/server_test_util.h"
#include "tests/server/shard_state_fixture.h"

namespace slimps {
namespace {

// How often each ticket of worker 0 is answered; every message must be one that a worker takes.
void CountAnswers(std::vector<Reply> replies, std::map<uint64_t, int>* answers) {
  for (Reply& reply : replies) {
    const wire::Header& header = reply.message.header;
    for (const auto& items :
         {header.init_reply().items(), header.push_reply().items(), header.pull_reply().pushed()}) {
      for (const wire::ItemStatus& item : items) ++(*answers)[item.id().ticket()];
    }
    for (const auto& item : header.pull_reply().items()) ++(*answers)[item.id().ticket()];
    const absl::Status built = BuildFrame(std::move(reply.message), kDefaultLimits).status();
    EXPECT_TRUE(built.ok()) << built;
  }
}

TEST(OutOfMemory, ARoundKeepsTheChoiceOfThePushThatIsSentAgain) {
  constexpr size_t kElements = 5000;
  FakeClock clock;
  ChangeCodecs codecs(&clock);
  PartitionSpec spec;
  spec.key = Key("w").id();
  spec.name = "s:w";
  spec.elements = kElements;
  spec.num_workers = 2;
  const ClaimedPayload gradient = Raw(RandomValues(kElements, 1));
  const std::shared_ptr<const ChangeCodec> codec = codecs.Find("1bit").value();
  for (int n = 0;; ++n) {
    auto partition = Partition::Create(spec, gradient, MakeOptimizer({})).value();
    ASSERT_TRUE(partition->Push(1, 1, kElements, gradient).ok());
    const auto push = [&] { return partition->Push(2, 0, kElements, gradient, codec); };
    const bool ran_out = RunsOut(n, [&] { (void)push(); });
    ASSERT_TRUE(push().ok());
    ASSERT_TRUE(partition->Push(2, 1, kElements, gradient).ok());
    ASSERT_TRUE(partition->Push(1, 0, kElements, gradient).ok());
    partition->ApplyNextRound();
    ASSERT_TRUE(partition->HasCompleteRound());
    partition->ApplyNextRound();
    EXPECT_EQ(partition->Share(2, 1).base_version, 1u) << "allocation " << n;
    if (ran_out) continue;
    EXPECT_GT(n, 0);
    return;
  }
}

TEST(OutOfMemory, AnAnswerThatFillsItsMessageIsInItOnce) {
  const Origin origin{.peer = PeerId{1}, .worker = 0, .request_id = 1};
  wire::PullItem pull;
  FillPull(&pull, "w", 0, 1, 2, 0, 7);
  const size_t large = ReplyOutbox::kGroupBytes / sizeof(float);
  const WireValue value{.version = 1, .payload = RawPayload(std::vector<float>(large))};
  const absl::Status error = absl::NotFoundError(std::string(ReplyOutbox::kGroupBytes, 'x'));
  const std::vector<std::function<void(ReplyOutbox&)>> adds = {
      [&](ReplyOutbox& outbox) { outbox.AddInit(origin, pull.id(), error); },
      [&](ReplyOutbox& outbox) { outbox.AddPush(origin, pull.id(), error, 0); },
      [&](ReplyOutbox& outbox) { outbox.AddPull(origin, pull, large, value); },
      [&](ReplyOutbox& outbox) { outbox.AddPullError(origin, pull, error); },
  };
  for (const auto& add : adds) {
    for (int n = 0;; ++n) {
      SCOPED_TRACE(n);
      ReplyOutbox outbox;
      bool added = false;
      const bool ran_out = RunsOut(n, [&] {
        add(outbox);
        added = true;
      });
      if (!added) add(outbox);
      outbox.Flush();
      std::map<uint64_t, int> answers;
      CountAnswers(outbox.Take(), &answers);
      EXPECT_EQ(answers, (std::map<uint64_t, int>{{7, 1}}));
      if (ran_out) continue;
      EXPECT_GT(n, 3);
      break;
    }
  }
}

// A shard that is driven as its thread drives it, with all kinds of items and of answers.
class ShardOutOfMemory : public ShardStateTest {
 protected:
  static constexpr size_t kElements = 100;

  PullWork MakePull(const char* name, uint64_t version, uint64_t ticket) const {
    PullWork pull;
    FillPull(&pull.item, name, 0, version, kElements, 0, ticket);
    pull.deadline = clock_.Now() + absl::Seconds(5);
    return pull;
  }
  // Tickets 1 to 6, one for each item; a pull with ticket 7 waits for round 1 of "w" already.
  ShardItems MakeItems() const {
    ShardItems items{.origin = From(0)};
    items.inits.push_back(MakeInit("new", std::vector<float>(kElements)));
    for (const char* name : {"w", "no such key"}) {
      PushWork push = MakePush(name, 1, std::vector<float>(kElements, 1.0f));
      push.item.mutable_id()->set_ticket(items.pushes.size() + 2);
      items.pushes.push_back(std::move(push));
    }
    items.pulls.push_back(MakePull("v", 0, 4));
    items.pulls.push_back(MakePull("no such key", 1, 5));
    items.pulls.push_back(MakePull("w", 1, 6));
    return items;
  }
  std::unique_ptr<ShardState> MakeState() {
    auto state = std::make_unique<ShardState>(MakeOptimizer({}), &clock_);
    ShardItems before{.origin = From(0)};
    for (const char* name : {"w", "v"}) {
      before.inits.push_back(MakeInit(name, std::vector<float>(kElements)));
    }
    before.pulls.push_back(MakePull("w", 1, 7));
    state->HandleItems(std::move(before));
    ShardItems other{.origin = From(1)};
    other.pushes.push_back(MakePush("w", 1, std::vector<float>(kElements, 1.0f)));
    state->HandleItems(std::move(other));
    (void)state->TakeReplies();
    return state;
  }
};

TEST_F(ShardOutOfMemory, WhatIsAnsweredIsAnsweredInWholeMessages) {
  for (int n = 0;; ++n) {
    SCOPED_TRACE(n);
    std::unique_ptr<ShardState> state = MakeState();
    ShardItems items = MakeItems();
    std::vector<Reply> replies;
    bool done = false;
    const bool ran_out = RunsOut(n, [&] {
      state->HandleItems(std::move(items));
      while (state->HasCompleteRound()) state->ApplyOne();
      replies = state->TakeReplies();
      done = true;
    });
    std::map<uint64_t, int> answers;
    CountAnswers(std::move(replies), &answers);
    if (!done) {
      state->Fail(absl::UnavailableError("the server is out of memory"));
      CountAnswers(state->TakeReplies(), &answers);
    }
    for (const auto& [ticket, times] : answers) {
      EXPECT_GE(ticket, 1u);
      EXPECT_LE(ticket, 7u);
    }
    if (ran_out) continue;
    EXPECT_EQ(answers.size(), 7u);
    EXPECT_GT(n, 50);
    return;
  }
}

}  // namespace
}  // namespace slimps
