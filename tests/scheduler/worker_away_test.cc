// SPDX-License-Identifier: Apache-2.0
// Workers that are gone for so long that the job goes on without them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/scheduler/scheduler_state_fixture.h"

namespace slimps {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using Phase = SchedulerState::Phase;

constexpr absl::Duration kWorkerTimeout = absl::Seconds(30);

class WorkerAwayTest : public SchedulerStateTest {
 protected:
  WorkerAwayTest()
      : SchedulerStateTest(/*restart_timeout=*/absl::Seconds(20),
                           /*worker_timeout=*/kWorkerTimeout) {}

  // All are there, and both workers have begun their rounds.
  void RegisterAll() {
    SchedulerStateTest::RegisterAll();
    for (const uint64_t worker : {kWorker0, kWorker1}) Heartbeat(worker, /*has_pushed=*/true);
  }

  // Lets `silent` be silent until it is lost, and nobody else.
  void Lose(uint64_t silent) { LetPass(absl::Seconds(10) + absl::Milliseconds(1), silent); }

  void LetPass(absl::Duration time, uint64_t silent) {
    for (; time > absl::ZeroDuration(); time -= absl::Seconds(5)) {
      clock_.Advance(std::min(time, absl::Seconds(5)));
      for (const uint64_t node : {kServer, kNewServer, kWorker0, kWorker1}) {
        if (node != silent) Heartbeat(node);
      }
      last_ = Tick(kServer);
    }
  }

  // Worker 1 is away.
  void GoAway() {
    RegisterAll();
    Lose(kWorker1);
    LetPass(kWorkerTimeout + absl::Milliseconds(1), kWorker1);
    ASSERT_EQ(state_->phase(), Phase::kRunning);
  }

  std::vector<wire::Header> Visit(uint64_t node, uint64_t ticket) {
    wire::Header header = HeaderOf(node);
    header.mutable_barrier()->set_name("b");
    header.mutable_barrier()->set_group(wire::WORKER);
    header.mutable_barrier()->set_ticket(ticket);
    return Tell(node, header);
  }

  std::vector<wire::Header> last_;  // what the server got in the last tick
};

TEST_F(WorkerAwayTest, EveryoneIsToldAndTheServersKnowItNoMore) {
  RegisterAll();
  Lose(kWorker1);
  EXPECT_THAT(state_->TakeNews(), Contains(HasSubstr("the job waits up to 30s for it")));
  LetPass(kWorkerTimeout, kWorker1);
  EXPECT_FALSE(state_->members().Roster().nodes(2).away()) << "not before the time";
  LetPass(absl::Milliseconds(1), kWorker1);
  ASSERT_EQ(last_.size(), 1u);
  const wire::RosterEntry& entry = last_[0].roster().nodes(2);
  EXPECT_TRUE(entry.away());
  EXPECT_EQ(entry.incarnation(), 0u);
  EXPECT_THAT(state_->TakeNews(), Contains(HasSubstr("has been gone for over 30s; the job goes on "
                                                     "without it, and takes it back")));
}

// The others would train without what it was about to set: the optimizer, if it is worker 0.
TEST_F(WorkerAwayTest, AWorkerThatHasNotPushedYetIsWaitedFor) {
  for (const bool has_pushed : {false, true}) {
    for (const bool scheduler_dies : {false, true}) {
      MakeState();
      SchedulerStateTest::RegisterAll();
      Heartbeat(kWorker0, /*has_pushed=*/true);
      Heartbeat(kWorker1, has_pushed);
      Heartbeat(kWorker1);  // as the answer to a probe
      if (scheduler_dies) {
        const std::vector<JournalEntry> entries = state_->TakeEntries();
        MakeState();
        ASSERT_TRUE(state_->Restore(entries, clock_.Now()).ok());
      }
      Lose(kWorker1);
      EXPECT_THAT(state_->TakeNews(), Contains(HasSubstr(has_pushed ? "waits up to 30s for it"
                                                                    : "waits up to 20s for it")));
      LetPass(kWorkerTimeout + absl::Milliseconds(1), kWorker1);
      EXPECT_EQ(state_->phase() == Phase::kRunning, has_pushed);
    }
  }
}

TEST_F(WorkerAwayTest, BarriersDoNotWaitForIt) {
  RegisterAll();
  EXPECT_TRUE(Visit(kWorker0, 1).empty());
  Lose(kWorker1);
  const wire::Header visit = HeaderOf(kWorker0);
  LetPass(kWorkerTimeout + absl::Milliseconds(1), kWorker1);
  const auto released = Others(kWorker0);
  EXPECT_TRUE(std::ranges::any_of(
      released, [](const wire::Header& header) { return header.has_barrier_release(); }));
  const auto next = Visit(kWorker0, 2);
  ASSERT_EQ(next.size(), 1u);
  EXPECT_TRUE(next[0].has_barrier_release());
}

TEST_F(WorkerAwayTest, ItsFormerProcessIsFencedAndANewOneTakesThePlaceAtAnyTime) {
  GoAway();
  const auto answer = Heartbeat(kWorker1);
  ASSERT_EQ(answer.size(), 1u);
  EXPECT_THAT(answer[0].error().status().message(), HasSubstr("not registered"));
  LetPass(absl::Seconds(3600), kWorker1);
  EXPECT_EQ(state_->phase(), Phase::kRunning);
  const auto welcome = RegisterWorker1Again();
  ASSERT_EQ(welcome.size(), 2u);
  EXPECT_EQ(welcome[0].welcome().rank(), 1u);
  EXPECT_EQ(welcome[0].welcome().restarts(), 1u);
  EXPECT_FALSE(welcome[1].roster().nodes(2).away());
  EXPECT_TRUE(Visit(kWorker0, 1).empty()) << "barriers wait for it again";
}

TEST_F(WorkerAwayTest, ItWaitsForAServerThatIsGoneAndForWhatOthersSendThat) {
  GoAway();
  SaySaved(state_->members().epoch());
  Lose(kServer);
  state_->TakeNews();
  EXPECT_TRUE(RegisterWorker1Again().empty());
  EXPECT_THAT(state_->TakeNews(), Contains(HasSubstr("not yet: a server is gone")));
  RegisterServerAgain();
  EXPECT_TRUE(Others(kNewWorker).empty());
  SaySaved(state_->members().epoch(), kWorker0);
  ASSERT_FALSE(Others(kNewWorker).empty());
  EXPECT_TRUE(Others(kNewWorker)[0].has_welcome());
  EXPECT_EQ(state_->phase(), Phase::kRunning);
}

TEST_F(WorkerAwayTest, AWorkerThatHadNotSentAServerWhatItLacksEndsTheJob) {
  for (const bool had_sent : {false, true}) {
    for (const bool scheduler_dies : {false, true}) {
      MakeState();
      RegisterAll();
      state_->ConnectionGone(PeerId{kServer});
      RegisterServerAgain();
      if (had_sent) SaySaved(state_->members().epoch(), kWorker1);
      if (scheduler_dies) {
        const std::vector<JournalEntry> entries = state_->TakeEntries();
        MakeState();
        ASSERT_TRUE(state_->Restore(entries, clock_.Now()).ok());
      }
      Lose(kWorker1);
      EXPECT_EQ(state_->phase(), Phase::kRunning) << "it may only be slow";
      LetPass(kWorkerTimeout + absl::Milliseconds(1), kWorker1);
      EXPECT_EQ(state_->phase(), had_sent ? Phase::kRunning : Phase::kFailed);
    }
  }
}

TEST_F(WorkerAwayTest, TheLastWorkerIsNotLeftBehind) {
  GoAway();
  clock_.Advance(absl::Seconds(11));
  Heartbeat(kServer);
  Tick(kServer);
  EXPECT_EQ(state_->phase(), Phase::kRunning);
  for (int i = 0; i < 7; ++i) {
    clock_.Advance(absl::Seconds(5));
    Heartbeat(kServer);
    Tick(kServer);
  }
  EXPECT_EQ(state_->phase(), Phase::kFailed);
  EXPECT_THAT(std::string(state_->result().message()), HasSubstr("and no worker is left"));
}

TEST_F(WorkerAwayTest, TheJobEndsInOrderOnceTheOthersHaveLeft) {
  GoAway();
  Goodbye(kWorker0);
  EXPECT_EQ(state_->phase(), Phase::kEnding);
}

TEST_F(WorkerAwayTest, AServerMayBeLostOnceItHasSavedWhatCameFromIt) {
  for (const bool saved : {false, true}) {
    MakeState();
    GoAway();
    SaySaved(state_->members().epoch() - (saved ? 0 : 1));
    Lose(kServer);
    EXPECT_EQ(state_->phase(), Phase::kRunning) << "it may only be silent";
    RegisterServerAgain();
    EXPECT_EQ(state_->phase(), saved ? Phase::kRunning : Phase::kFailed);
    if (saved) continue;
    EXPECT_THAT(std::string(state_->result().message()), HasSubstr("are gone together"));
  }
}

TEST_F(WorkerAwayTest, ASchedulerThatIsStartedAgainKnowsWhatServersHaveSaved) {
  GoAway();
  SaySaved(state_->members().epoch());
  SaySaved(0);  // as the answer to a probe
  const std::vector<JournalEntry> entries = state_->TakeEntries();
  MakeState();
  ASSERT_TRUE(state_->Restore(entries, clock_.Now()).ok());
  Heartbeat(kWorker0);
  Lose(kServer);
  RegisterServerAgain();
  EXPECT_EQ(state_->phase(), Phase::kRunning);
}

TEST_F(WorkerAwayTest, AnEpochThatNobodyHasSeenIsNotSaved) {
  GoAway();
  state_->TakeEntries();
  for (uint64_t more = 1; more < 5; ++more) SaySaved(state_->members().epoch() + more);
  EXPECT_EQ(state_->TakeEntries().size(), 1u) << "the journal stays small";
}

TEST_F(WorkerAwayTest, ASchedulerThatIsStartedAgainKnowsWhoIsAway) {
  GoAway();
  const uint64_t epoch = state_->members().epoch();
  const std::vector<JournalEntry> entries = state_->TakeEntries();
  MakeState();
  ASSERT_TRUE(state_->Restore(entries, clock_.Now()).ok());
  EXPECT_TRUE(state_->members().Roster().nodes(2).away());
  EXPECT_EQ(state_->members().epoch(), epoch);
  for (const uint64_t node : {kServer, kWorker0}) Heartbeat(node);
  LetPass(absl::Seconds(60), kWorker1);
  EXPECT_EQ(state_->phase(), Phase::kRunning);
  EXPECT_EQ(RegisterWorker1Again().size(), 2u);
  const std::vector<JournalEntry> more = state_->TakeEntries();
  ASSERT_EQ(more.size(), 1u);
  EXPECT_EQ(more[0].kind, JournalEntry::Kind::kTakesPlace);
}

}  // namespace
}  // namespace slimps
