// Memory that runs out at any one allocation of a node's part in its job: what is to be said is said all the same, once
// there is some again.
#include <functional>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "proto/base/clock.h"
#include "proto/net/membership/membership_state.h"
#include "tests/net_membership/membership_fixture.h"
#include "tests/proto/base/failing_allocations.h"

namespace slimps {
namespace {

using Phase = MembershipState::Phase;
using Actions = MembershipState::Actions;

// Worker 1 of a job of two, driven by hand.
class MembershipOutOfMemory : public ::testing::Test {
 protected:
  static MembershipState::Options Options() {
    MembershipState::Options options;
    // Longer than what a string holds without allocating.
    options.job_id = "a job whose name takes memory of its own";
    options.scheduler_address = "tcp://here:1";
    options.registration.set_role(wire::WORKER);
    options.registration.set_host("a host whose name takes memory of its own");
    options.registration.add_endpoints("tcp://there:2");
    return options;
  }
  void From(wire::Header header) {
    header.set_job_id(Options().job_id);
    bool consumed = false;
    (void)state_->HandleFromScheduler(header, clock_.Now(), &consumed);
    EXPECT_TRUE(consumed);
  }
  // A member, whose next heartbeat is due.
  void Join() {
    state_.emplace(Options());
    (void)state_->StartJoin(clock_.Now(), clock_.Now() + absl::Seconds(60));
    wire::Header header;
    header.mutable_welcome()->set_rank(1);
    header.mutable_welcome()->set_heartbeat_interval_ms(1000);
    From(header);
    wire::Roster& roster = *header.mutable_roster();
    roster.set_num_workers(2);
    for (uint32_t rank = 0; rank < 2; ++rank) {
      roster.add_nodes()->mutable_node()->set_role(wire::WORKER);
      roster.mutable_nodes(static_cast<int>(rank))->mutable_node()->set_rank(rank);
    }
    From(header);
    ASSERT_EQ(state_->phase(), Phase::kMember);
    clock_.Advance(absl::Seconds(1));
  }
  // What is said of `body` when all that may be due is.
  std::vector<wire::Header> SaidLater(wire::Header::BodyCase body) {
    clock_.Advance(absl::Seconds(1));
    std::vector<wire::Header> said;
    for (wire::Header& header : state_->Tick(clock_.Now()).send) {
      EXPECT_NE(header.SerializeAsString(), "");
      if (header.body_case() == body) said.push_back(std::move(header));
    }
    return said;
  }

  FakeClock clock_;
  std::optional<MembershipState> state_;
};

TEST_F(MembershipOutOfMemory, AFailureIsReportedOnceThereIsSome) {
  const absl::Status why =
      absl::UnavailableError("key s:w partition 0: the server is out of memory");
  for (int n = 0;; ++n) {
    SCOPED_TRACE(n);
    Join();
    const bool ran_out = RunsOut(n, [&] { (void)state_->ReportFailure(why, clock_.Now()); });
    const std::vector<wire::Header> said = SaidLater(wire::Header::kError);
    ASSERT_EQ(said.size(), 1u);
    EXPECT_EQ(said[0].error().status().message(), why.message());
    EXPECT_EQ(said[0].error().node().role(), wire::WORKER);
    EXPECT_EQ(said[0].error().node().rank(), 1u);
    EXPECT_FALSE(state_->failure_reported());
    if (ran_out) continue;
    EXPECT_GT(n, 5);
    return;
  }
}

TEST_F(MembershipOutOfMemory, ABarrierBeginsWholeOrNotAtAll) {
  const std::string name = "a barrier whose name takes memory of its own";
  for (int n = 0;; ++n) {
    SCOPED_TRACE(n);
    Join();
    MembershipState::BarrierId id;
    bool begun = false;
    const auto begin = [&] {
      (void)state_->StartBarrier(
          {.name = name, .group = wire::WORKER, .purpose = {}, .values = {1.5}}, clock_.Now(), &id);
      begun = true;
    };
    const bool ran_out = RunsOut(n, begin);
    EXPECT_NE(ran_out, begun);
    if (!begun) {
      EXPECT_EQ(SaidLater(wire::Header::kBarrier).size(), 0u);
      begin();
    }
    EXPECT_EQ(id.ticket, 1u) << "the others count theirs alike";
    const std::vector<wire::Header> said = SaidLater(wire::Header::kBarrier);
    ASSERT_EQ(said.size(), 1u);
    EXPECT_EQ(said[0].barrier().name(), name);
    EXPECT_EQ(said[0].barrier().ticket(), 1u);
    ASSERT_EQ(said[0].barrier().values_size(), 1);
    EXPECT_EQ(said[0].barrier().values(0), 1.5);
    begin();
    EXPECT_EQ(id.ticket, 2u);
    if (ran_out) continue;
    EXPECT_GT(n, 5);
    return;
  }
}

TEST_F(MembershipOutOfMemory, WhatIsDueIsSaidOnceThereIsSome) {
  const std::vector<std::pair<wire::Header::BodyCase, std::function<void()>>> cases = {
      {wire::Header::kRegister,
       [this] { (void)state_->StartJoin(clock_.Now(), clock_.Now() + absl::Seconds(60)); }},
      {wire::Header::kHeartbeat, [this] { (void)state_->Tick(clock_.Now()); }},
      {wire::Header::kGoodbye, [this] { (void)state_->StartLeave(clock_.Now()); }},
  };
  for (const auto& [body, call] : cases) {
    for (int n = 0;; ++n) {
      SCOPED_TRACE(testing::Message() << "body " << body << " allocation " << n);
      body == wire::Header::kRegister ? (void)state_.emplace(Options()) : Join();
      const bool ran_out = RunsOut(n, call);
      EXPECT_EQ(SaidLater(body).size(), 1u);
      if (ran_out) continue;
      EXPECT_GT(n, 0);
      break;
    }
  }
}

// Begun, it is waited for, whatever could not be sent at once: who left it would meet the others at their next one.
TEST_F(MembershipTest, ABarrierThatMemoryWasShortForIsAwaitedOrNotBegun) {
  TestScheduler scheduler(network_, Scheduler());
  JoinAll();
  int not_begun = 0;
  for (int n = 0;; n += 3) {  // what was not sent takes a second
    SCOPED_TRACE(n);
    std::thread other([this] {
      const absl::Status status = worker(1).Barrier("b", wire::WORKER, kLong);
      EXPECT_TRUE(status.ok()) << status;
    });
    absl::Status status = absl::UnknownError("not begun");
    const auto wait = [&] { status = worker(0).Barrier("b", wire::WORKER, kLong); };
    const bool ran_out = RunsOut(n, wait);
    if (absl::IsUnknown(status)) {
      ++not_begun;
      wait();
    }
    EXPECT_TRUE(status.ok()) << status;
    other.join();
    if (!ran_out) break;
  }
  EXPECT_GT(not_begun, 0);
}

}  // namespace
}  // namespace slimps
