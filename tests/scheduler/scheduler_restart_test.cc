// SPDX-License-Identifier: Apache-2.0
// A scheduler that is started again goes on by its journal.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "tests/scheduler/scheduler_state_fixture.h"

namespace slimps {
namespace {

using ::testing::ElementsAre;
using Phase = SchedulerState::Phase;

class SchedulerRestartTest : public SchedulerStateTest {
 protected:
  SchedulerRestartTest() : SchedulerStateTest(/*restart_timeout=*/absl::Seconds(60)) {}

  // Starts the scheduler again. The nodes' connections are new.
  void Restart() {
    for (JournalEntry& entry : state_->TakeEntries()) written_.push_back(std::move(entry));
    MakeState();
    const absl::Status restored = state_->Restore(written_, clock_.Now());
    EXPECT_TRUE(restored.ok()) << restored;
  }
  std::vector<wire::Header> AtBarrier(uint64_t node, uint64_t ticket, double value) {
    wire::Header header = HeaderOf(node);
    header.mutable_barrier()->set_name("sum");
    header.mutable_barrier()->set_group(wire::WORKER);
    header.mutable_barrier()->set_ticket(ticket);
    header.mutable_barrier()->add_values(value);
    return Tell(node, header);
  }

  std::vector<JournalEntry> written_;
};

TEST_F(SchedulerRestartTest, MembersKeepTheirPlacesAndTheEpochDoesNotFall) {
  RegisterAll();
  const uint64_t epoch = state_->members().epoch();
  Restart();
  EXPECT_EQ(state_->phase(), Phase::kRunning);
  EXPECT_EQ(state_->members().epoch(), epoch);
  EXPECT_EQ(Heartbeat(kWorker1).size(), 1u);
  EXPECT_EQ(state_->members().Find({wire::WORKER, 1})->entry.pid(), kWorker1);
}

TEST_F(SchedulerRestartTest, NobodyIsLostBeforeATimeoutHasPassed) {
  RegisterAll();
  clock_.Advance(absl::Seconds(100));
  Restart();
  clock_.Advance(absl::Seconds(10));
  Tick(kWorker0);
  const auto worker1 = [&] { return state_->members().Find({wire::WORKER, 1})->state; };
  EXPECT_EQ(worker1(), MemberState::kLive);
  Heartbeat(kWorker0);
  Heartbeat(kServer);
  clock_.Advance(absl::Milliseconds(1));
  Tick(kWorker0);
  EXPECT_EQ(worker1(), MemberState::kLost);
}

TEST_F(SchedulerRestartTest, AJobThatFormsGoesOnForming) {
  Register(kServer);
  Register(kWorker0);
  Restart();
  EXPECT_EQ(state_->phase(), Phase::kForming);
  Register(kWorker1);
  EXPECT_EQ(state_->phase(), Phase::kRunning);
}

TEST_F(SchedulerRestartTest, ABarrierIsAsFarAsItWas) {
  RegisterAll();
  AtBarrier(kWorker0, 1, 2.0);
  Restart();
  Heartbeat(kWorker0);
  const auto released = AtBarrier(kWorker1, 1, 0.5);
  ASSERT_EQ(released.size(), 1u);
  EXPECT_THAT(released[0].barrier_release().sums(), ElementsAre(2.5));
  EXPECT_EQ(Others(kWorker0).size(), 1u);
}

TEST_F(SchedulerRestartTest, WhoMissedARestartedSchedulersReleaseIsGivenItAgain) {
  RegisterAll();
  for (uint64_t ticket = 1; ticket <= 3; ++ticket) {
    AtBarrier(kWorker0, ticket, 1.0);
    AtBarrier(kWorker1, ticket, 1.0);
  }
  Restart();
  const auto again = AtBarrier(kWorker0, 3, 1.0);
  ASSERT_EQ(again.size(), 1u);
  EXPECT_THAT(again[0].barrier_release().sums(), ElementsAre(2.0));
  written_ = WithoutOldBarriers(written_, /*num_workers=*/2);
  Restart();
  EXPECT_EQ(AtBarrier(kWorker1, 3, 1.0).size(), 1u);
}

TEST_F(SchedulerRestartTest, AWorkerThatComesBackIsAnsweredAtAllItsFirstBarriers) {
  constexpr uint64_t kTickets = 80;
  RegisterAll();
  for (uint64_t ticket = 1; ticket <= kTickets; ++ticket) {
    for (const uint64_t worker : {kWorker0, kWorker1}) {
      AtBarrier(worker, ticket, static_cast<double>(ticket));
    }
  }
  for (const uint64_t worker : {kWorker0, kWorker1}) Heartbeat(worker, /*has_pushed=*/true);
  for (uint64_t ticket = kTickets + 1; ticket <= kTickets + 2000; ++ticket) {
    for (const uint64_t worker : {kWorker0, kWorker1}) AtBarrier(worker, ticket, 0.0);
  }
  for (int restarts = 0; restarts < 2; ++restarts) {
    Restart();
    written_ = WithoutOldBarriers(written_, /*num_workers=*/2);
  }
  EXPECT_LT(written_.size(), 2000u) << "what was summed in training is dropped";
  for (const uint64_t node : {kServer, kWorker0, kWorker1}) Heartbeat(node);
  state_->ConnectionGone(PeerId{kWorker1});
  ASSERT_FALSE(RegisterWorker1Again().empty());
  for (uint64_t ticket = 1; ticket <= kTickets; ++ticket) {
    const auto again = AtBarrier(kNewWorker, ticket, 7.0);
    ASSERT_EQ(again.size(), 1u) << ticket;
    EXPECT_THAT(again[0].barrier_release().sums(), ElementsAre(2.0 * static_cast<double>(ticket)));
  }
}

TEST_F(SchedulerRestartTest, AServersSecondProcessIsKnown) {
  RegisterAll();
  state_->ConnectionGone(PeerId{kServer});
  clock_.Advance(absl::Milliseconds(1));
  wire::Header header = RegistrationOf(9, wire::SERVER);
  header.mutable_register_()->set_wanted_rank(0);
  Tell(9, header);
  const uint64_t epoch = state_->members().epoch();
  Restart();
  const Member* server = state_->members().Find({wire::SERVER, 0});
  EXPECT_EQ(server->entry.pid(), 9u);
  EXPECT_EQ(server->entry.restarts(), 1u);
  wire::Header behind = HeaderOf(kWorker0);
  behind.mutable_heartbeat();
  behind.set_membership_epoch(epoch - 1);
  EXPECT_EQ(Tell(kWorker0, behind).size(), 2u) << "the roster that it has not seen";
}

TEST_F(SchedulerRestartTest, AServerHasTimeToConnectBeforeAnotherProcessTakesItsPlace) {
  RegisterAll();
  Restart();
  clock_.Advance(absl::Milliseconds(1));
  wire::Header header = RegistrationOf(9, wire::SERVER);
  header.mutable_register_()->set_wanted_rank(0);
  EXPECT_TRUE(Tell(9, header).empty());
  clock_.Advance(absl::Milliseconds(1));
  Heartbeat(kServer);
  EXPECT_TRUE(Tell(9, header).empty());
  ASSERT_EQ(Others(kServer).size(), 1u) << "asked, now that there is a connection";
  AnswerProbe(kServer);
  ASSERT_EQ(Others(9).size(), 1u);
  EXPECT_TRUE(Others(9)[0].has_error()) << "the server lives";
}

TEST_F(SchedulerRestartTest, APlaceThatChangedHandsWhileTheJobFormedIsRestored) {
  Register(kServer);
  clock_.Advance(absl::Seconds(11));
  Tick(kServer);
  wire::Header header = RegistrationOf(9, wire::SERVER);
  Tell(9, header);
  Restart();
  Register(kWorker0);
  Register(kWorker1);
  EXPECT_EQ(state_->phase(), Phase::kRunning);
  EXPECT_EQ(state_->members().Find({wire::SERVER, 0})->entry.pid(), 9u);
}

TEST_F(SchedulerRestartTest, WhoHasLeftStaysAwayAndTheJobEnds) {
  RegisterAll();
  Goodbye(kWorker0);
  Restart();
  Heartbeat(kServer);
  EXPECT_EQ(state_->phase(), Phase::kRunning);
  Goodbye(kWorker1);
  EXPECT_EQ(state_->phase(), Phase::kEnding);
  Restart();
  EXPECT_EQ(state_->phase(), Phase::kEnding);
  Heartbeat(kServer);
  EXPECT_TRUE(Tick(kServer)[0].has_shutdown());
}

TEST_F(SchedulerRestartTest, NodesWaitForASchedulerThatMayReturn) {
  EXPECT_EQ(Register(kWorker0)[0].welcome().scheduler_timeout_ms(), 70000u);
}

}  // namespace
}  // namespace slimps
