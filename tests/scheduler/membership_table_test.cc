// SPDX-License-Identifier: Apache-2.0
#include "scheduler/membership_table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "proto/base/clock.h"

namespace slimps {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

wire::Header RegisterHeader(wire::Role role, uint64_t incarnation, int32_t wanted = -1) {
  wire::Header header;
  header.set_job_id("job");
  header.set_incarnation(incarnation);
  wire::Register* registration = header.mutable_register_();
  registration->set_role(role);
  registration->set_wanted_rank(wanted);
  registration->set_num_workers(2);
  registration->set_num_servers(1);
  registration->set_host("alpha");
  registration->set_pid(incarnation + 1000);
  if (role == wire::SERVER) registration->add_endpoints("tcp://127.0.0.1:1");
  return header;
}

class MembershipTableTest : public testing::Test {
 protected:
  absl::StatusOr<uint32_t> Register(const wire::Header& header) {
    const absl::StatusOr<const Member*> member =
        table_.Register(header, PeerId{header.incarnation()}, clock_.Now());
    if (!member.ok()) return member.status();
    return (*member)->entry.node().rank();
  }
  uint32_t MustRegister(wire::Role role, uint64_t incarnation, int32_t wanted = -1) {
    const absl::StatusOr<uint32_t> rank = Register(RegisterHeader(role, incarnation, wanted));
    EXPECT_TRUE(rank.ok()) << rank.status();
    return rank.value_or(999);
  }
  void RegisterAll() {
    MustRegister(wire::SERVER, 1);
    MustRegister(wire::WORKER, 2);
    MustRegister(wire::WORKER, 3);
  }

  // Sends a message of worker 0 from connection `peer`. Worker 0 registers as peer 2.
  absl::Status HearAt(uint64_t peer) {
    return table_.Heard(RegisterHeader(wire::WORKER, 2), PeerId{peer}, clock_.Now()).status();
  }

  FakeClock clock_;
  MembershipTable table_{{.job_id = "job",
                          .num_workers = 2,
                          .num_servers = 1,
                          .heartbeat_timeout = absl::Seconds(10)}};
};

TEST_F(MembershipTableTest, RanksGoInOrderOfArrivalPerRole) {
  EXPECT_EQ(MustRegister(wire::WORKER, 1), 0u);
  EXPECT_EQ(MustRegister(wire::SERVER, 2), 0u);
  EXPECT_FALSE(table_.complete());
  EXPECT_EQ(MustRegister(wire::WORKER, 3), 1u);
  EXPECT_TRUE(table_.complete());
}

TEST_F(MembershipTableTest, AWantedRankIsGivenAndOthersGoAroundIt) {
  EXPECT_EQ(MustRegister(wire::WORKER, 1, 1), 1u);
  EXPECT_EQ(MustRegister(wire::WORKER, 2), 0u);
}

TEST_F(MembershipTableTest, ARepeatedRegisterFindsItsOwnEntry) {
  EXPECT_EQ(MustRegister(wire::WORKER, 7), 0u);
  const uint64_t epoch = table_.epoch();
  EXPECT_EQ(MustRegister(wire::WORKER, 7), 0u);
  EXPECT_EQ(table_.epoch(), epoch);
  EXPECT_EQ(table_.Roster().nodes_size(), 1);
}

TEST_F(MembershipTableTest, ATakenRankIsRefusedNamingItsHolder) {
  MustRegister(wire::WORKER, 7, 1);
  const absl::Status status = Register(RegisterHeader(wire::WORKER, 8, 1)).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kAlreadyExists);
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("rank 1 is taken by worker 1 (host alpha, pid 1007)"));
}

TEST_F(MembershipTableTest, ARankOutsideTheJobIsRefused) {
  const absl::Status status = Register(RegisterHeader(wire::WORKER, 8, 2)).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("wanted rank 2, but the job has 2 workers"));
}

TEST_F(MembershipTableTest, OneNodeTooManyIsRefused) {
  RegisterAll();
  const absl::Status status = Register(RegisterHeader(wire::WORKER, 9)).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(status.message()), HasSubstr("2 workers"));
}

// A stranger needs the job's name and an incarnation to get in, so a refusal tells neither.
TEST_F(MembershipTableTest, ASecondJobIsRefusedNamingNeither) {
  wire::Header header = RegisterHeader(wire::WORKER, 1);
  header.set_job_id("job4711");
  const absl::Status status = Register(header).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()), HasSubstr("another job"));
  EXPECT_THAT(std::string(status.message()), Not(HasSubstr("\"")));
  EXPECT_THAT(std::string(status.message()), Not(HasSubstr("4711")));
}

TEST_F(MembershipTableTest, ANodeWithoutAnIncarnationIsRefused) {
  EXPECT_THAT(std::string(Register(RegisterHeader(wire::WORKER, 0)).status().message()),
              HasSubstr("incarnation"));
}

TEST_F(MembershipTableTest, BothHalvesOfAnIncarnationCount) {
  RegisterAll();
  wire::Header header = RegisterHeader(wire::WORKER, 2);
  header.set_incarnation_high(1);
  EXPECT_EQ(table_.Heard(header, PeerId{2}, clock_.Now()).status().code(),
            absl::StatusCode::kNotFound);
}

TEST_F(MembershipTableTest, WhatARegistrationBringsIsBounded) {
  wire::Header header = RegisterHeader(wire::SERVER, 1);
  header.mutable_register_()->set_host(std::string(256, 'h'));
  EXPECT_THAT(std::string(Register(header).status().message()), HasSubstr("at most 255 bytes"));
  header.mutable_register_()->set_host("h");
  header.mutable_register_()->set_endpoints(0, std::string(256, 'e'));
  EXPECT_THAT(std::string(Register(header).status().message()), HasSubstr("got 256"));
  header.mutable_register_()->set_endpoints(0, "e");
  for (int i = 0; i < 16; ++i) header.mutable_register_()->add_endpoints("e");
  EXPECT_THAT(std::string(Register(header).status().message()), HasSubstr("at most 16 endpoints"));
}

TEST_F(MembershipTableTest, WrongCountsAreRefusedWithExpectedAndGot) {
  wire::Header header = RegisterHeader(wire::WORKER, 1);
  header.mutable_register_()->set_num_workers(3);
  const absl::Status status = Register(header).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("has 2 workers and 1 server"));
  EXPECT_THAT(std::string(status.message()), HasSubstr("was told 3 workers and 1 server"));
}

TEST_F(MembershipTableTest, OnlyServersAndWorkersMayRegisterAndServersNameAnEndpoint) {
  wire::Header header = RegisterHeader(wire::SCHEDULER, 1);
  EXPECT_EQ(Register(header).status().code(), absl::StatusCode::kInvalidArgument);
  header = RegisterHeader(wire::SERVER, 1);
  header.mutable_register_()->clear_endpoints();
  EXPECT_THAT(std::string(Register(header).status().message()), HasSubstr("endpoint"));
}

TEST_F(MembershipTableTest, OneProcessCannotHaveTwoRoles) {
  MustRegister(wire::WORKER, 7);
  EXPECT_EQ(Register(RegisterHeader(wire::SERVER, 7)).status().code(),
            absl::StatusCode::kInvalidArgument);
}

TEST_F(MembershipTableTest, AMemberIsOverdueOnlyAfterTheTimeout) {
  RegisterAll();
  clock_.Advance(absl::Seconds(10));
  EXPECT_TRUE(table_.Overdue(clock_.Now()).empty());
  ASSERT_TRUE(table_.Heard(RegisterHeader(wire::WORKER, 2), PeerId{2}, clock_.Now()).ok());
  clock_.Advance(absl::Milliseconds(1));
  const std::vector<Member> overdue = table_.Overdue(clock_.Now());
  ASSERT_EQ(overdue.size(), 2u);
  EXPECT_EQ(overdue[0].ToString(), "server 0 (host alpha, pid 1001)");
  EXPECT_EQ(overdue[1].ToString(), "worker 1 (host alpha, pid 1003)");
}

TEST_F(MembershipTableTest, AMemberThatLeftIsNeverOverdue) {
  RegisterAll();
  wire::NodeRef worker;
  worker.set_role(wire::WORKER);
  table_.Leave(worker);
  clock_.Advance(absl::Hours(1));
  EXPECT_EQ(table_.Overdue(clock_.Now()).size(), 2u);
  EXPECT_EQ(table_.LiveMembers().size(), 2u);
  EXPECT_FALSE(table_.AllLeft(wire::WORKER));
  worker.set_rank(1);
  table_.Leave(worker);
  EXPECT_TRUE(table_.AllLeft(wire::WORKER));
  EXPECT_TRUE(table_.complete());
}

TEST_F(MembershipTableTest, BeforeTheRosterIsCompleteALeaverGivesItsRankBack) {
  MustRegister(wire::WORKER, 1);
  wire::NodeRef worker;
  worker.set_role(wire::WORKER);
  table_.Leave(worker);
  EXPECT_EQ(MustRegister(wire::WORKER, 2), 0u);
}

TEST_F(MembershipTableTest, AStrangerIsNotHeard) {
  RegisterAll();
  EXPECT_EQ(
      table_.Heard(RegisterHeader(wire::WORKER, 99), PeerId{99}, clock_.Now()).status().code(),
      absl::StatusCode::kNotFound);
  wire::Header other_job = RegisterHeader(wire::WORKER, 2);
  other_job.set_job_id("other");
  EXPECT_FALSE(table_.Heard(other_job, PeerId{2}, clock_.Now()).ok());
}

TEST_F(MembershipTableTest, ALivingMembersConnectionIsNotReplaced) {
  RegisterAll();
  for (int attempt = 0; attempt < 3; ++attempt) {
    EXPECT_EQ(HearAt(77).code(), absl::StatusCode::kUnavailable);
    EXPECT_EQ(HearAt(77).code(), absl::StatusCode::kUnavailable);
    EXPECT_THAT(table_.TakeProbes(), ElementsAre(PeerId{2})) << "once per claim";
    clock_.Advance(absl::Milliseconds(2499));
    ASSERT_TRUE(HearAt(2).ok()) << "it answers the probe";
    table_.SettleClaims(clock_.Now());
    EXPECT_EQ(table_.LiveMembers()[1].peer, PeerId{2});
  }
}

TEST_F(MembershipTableTest, ASilentConnectionIsReplacedAfterTheProbeTimeout) {
  RegisterAll();
  EXPECT_FALSE(HearAt(77).ok());
  clock_.Advance(absl::Milliseconds(2499));
  table_.SettleClaims(clock_.Now());
  EXPECT_EQ(table_.LiveMembers()[1].peer, PeerId{2});
  clock_.Advance(absl::Milliseconds(1));
  table_.SettleClaims(clock_.Now());
  EXPECT_EQ(table_.LiveMembers()[1].peer, PeerId{77});
  EXPECT_TRUE(HearAt(77).ok());
}

TEST_F(MembershipTableTest, AConnectionThatIsGoneIsReplacedAtOnce) {
  RegisterAll();
  EXPECT_FALSE(HearAt(77).ok());
  table_.ConnectionGone(PeerId{2});
  EXPECT_TRUE(HearAt(77).ok());
  table_.ConnectionGone(PeerId{77});  // this connection goes before 78 claims it
  EXPECT_TRUE(HearAt(78).ok());
  EXPECT_EQ(table_.LiveMembers()[1].peer, PeerId{78});
  EXPECT_EQ(HearAt(2).code(), absl::StatusCode::kUnavailable) << "the new one is guarded alike";
}

TEST_F(MembershipTableTest, WhoClaimsAPlaceDoesNotKeepItsHolderAlive) {
  RegisterAll();
  clock_.Advance(absl::Seconds(9));
  EXPECT_FALSE(HearAt(77).ok());
  clock_.Advance(absl::Milliseconds(1001));
  EXPECT_EQ(table_.Overdue(clock_.Now()).size(), 3u);
}

TEST_F(MembershipTableTest, ARegistrationTakesNoLivingMembersConnectionEither) {
  RegisterAll();
  EXPECT_EQ(
      table_.Register(RegisterHeader(wire::WORKER, 2), PeerId{77}, clock_.Now()).status().code(),
      absl::StatusCode::kUnavailable);
  EXPECT_EQ(table_.LiveMembers()[1].peer, PeerId{2});
}

TEST_F(MembershipTableTest, IncarnationsOfWorkersGoToServersAlone) {
  RegisterAll();
  const std::vector<Member> members = table_.LiveMembers();
  const wire::Roster of_server = table_.RosterFor(members[0]);
  EXPECT_EQ(of_server.nodes(0).incarnation(), 0u);
  EXPECT_EQ(of_server.nodes(1).incarnation(), 2u);
  const wire::Roster of_worker = table_.RosterFor(members[1]);
  EXPECT_EQ(of_worker.nodes(0).endpoints(0), "tcp://127.0.0.1:1");
  for (const wire::RosterEntry& entry : of_worker.nodes()) EXPECT_EQ(entry.incarnation(), 0u);
}

TEST_F(MembershipTableTest, AnIncompleteRosterHasNamesAndNoMore) {
  MustRegister(wire::SERVER, 1);
  MustRegister(wire::WORKER, 2);
  const wire::Roster roster = table_.RosterFor(table_.LiveMembers()[0]);
  ASSERT_EQ(roster.nodes_size(), 2);
  wire::RosterEntry name;
  name.mutable_node()->set_role(wire::WORKER);
  EXPECT_EQ(roster.nodes(1).SerializeAsString(), name.SerializeAsString());
}

TEST_F(MembershipTableTest, TheRosterListsServersThenWorkersWithEndpoints) {
  MustRegister(wire::WORKER, 3);
  MustRegister(wire::SERVER, 1);
  const wire::Roster roster = table_.Roster();
  ASSERT_EQ(roster.nodes_size(), 2);
  EXPECT_EQ(roster.nodes(0).node().role(), wire::SERVER);
  EXPECT_EQ(roster.nodes(0).endpoints(0), "tcp://127.0.0.1:1");
  EXPECT_EQ(roster.nodes(1).incarnation(), 3u);
  EXPECT_EQ(roster.num_workers(), 2u);
  EXPECT_EQ(roster.epoch(), 2u);
}

}  // namespace
}  // namespace slimps
