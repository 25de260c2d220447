// SPDX-License-Identifier: Apache-2.0
#include "server/service/admission.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/slimps.pb.h"

namespace slimps {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

class AdmissionTest : public ::testing::Test {
 protected:
  AdmissionTest() {
    wire::Roster roster;
    roster.set_epoch(3);
    wire::RosterEntry* entry = roster.add_nodes();
    entry->mutable_node()->set_role(wire::WORKER);
    entry->mutable_node()->set_rank(1);
    entry->set_incarnation(77);
    admission_.SetRoster(roster);
    header_.set_job_id("job");
    header_.mutable_sender()->set_role(wire::WORKER);
    header_.mutable_sender()->set_rank(1);
    header_.set_incarnation(77);
    header_.set_membership_epoch(3);
  }
  absl::StatusCode Check() { return admission_.Check(header_, user_id_).code(); }
  std::string Words() { return std::string(admission_.Check(header_, user_id_).message()); }

  Admission admission_{"job", 2};
  wire::Header header_;
  std::string user_id_;
};

TEST_F(AdmissionTest, WorkersOfTheRosterAreLetIn) { EXPECT_EQ(Check(), absl::StatusCode::kOk); }

TEST_F(AdmissionTest, AnotherJobIsNot) {
  header_.set_job_id("other");
  EXPECT_EQ(Check(), absl::StatusCode::kPermissionDenied);
}

TEST_F(AdmissionTest, OtherRolesAndRanksAreNot) {
  header_.mutable_sender()->set_rank(2);
  EXPECT_EQ(Check(), absl::StatusCode::kPermissionDenied);
  header_.mutable_sender()->set_rank(0);
  EXPECT_EQ(Check(), absl::StatusCode::kPermissionDenied);
  header_.mutable_sender()->set_rank(1);
  header_.mutable_sender()->set_role(wire::SERVER);
  EXPECT_EQ(Check(), absl::StatusCode::kPermissionDenied);
}

TEST_F(AdmissionTest, AnotherNodesKeyIsNotWhateverItsIncarnation) {
  user_id_ = "worker 1";
  EXPECT_EQ(Check(), absl::StatusCode::kOk);
  for (const char* other : {"worker 0", "server 1", "worker 10"}) {
    user_id_ = other;
    EXPECT_EQ(Check(), absl::StatusCode::kPermissionDenied) << other;
    EXPECT_EQ(Words(), "this is another node's key");
  }
}

TEST_F(AdmissionTest, TheRightKeyWithoutTheIncarnationIsNot) {
  user_id_ = "worker 1";
  header_.set_incarnation(78);
  EXPECT_EQ(Check(), absl::StatusCode::kFailedPrecondition);
}

TEST_F(AdmissionTest, AReplacedProcessIsRefusedAndANewerRosterAwaited) {
  header_.set_incarnation(78);
  EXPECT_EQ(Check(), absl::StatusCode::kFailedPrecondition);
  header_.set_membership_epoch(4);
  EXPECT_EQ(Check(), absl::StatusCode::kUnavailable);
}

TEST_F(AdmissionTest, AnOlderRosterIsIgnored) {
  wire::Roster old;
  old.set_epoch(2);
  admission_.SetRoster(old);
  EXPECT_EQ(Check(), absl::StatusCode::kOk);
  EXPECT_EQ(admission_.epoch(), 3u);
}

TEST_F(AdmissionTest, ANewerRosterReplacesTheWholeOfTheOld) {
  wire::Roster roster;
  roster.set_epoch(4);
  wire::RosterEntry* server = roster.add_nodes();
  server->mutable_node()->set_role(wire::SERVER);
  server->mutable_node()->set_rank(1);
  server->set_incarnation(77);
  admission_.SetRoster(roster);
  EXPECT_EQ(admission_.epoch(), 4u);
  EXPECT_EQ(Check(), absl::StatusCode::kPermissionDenied) << "a server's entry is no worker's";
  EXPECT_THAT(Words(), HasSubstr("does not know this process any more")) << "launch knows these";
  wire::RosterEntry* successor = roster.add_nodes();
  successor->mutable_node()->set_role(wire::WORKER);
  successor->mutable_node()->set_rank(1);
  successor->set_incarnation(78);
  admission_.SetRoster(roster);  // of the same epoch: the newest roster counts
  EXPECT_EQ(Check(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(Words(), HasSubstr("does not know this process any more"));
  header_.set_incarnation(78);
  EXPECT_EQ(Check(), absl::StatusCode::kOk);
}

TEST_F(AdmissionTest, BeforeAnyRosterTheSenderMayKnowMore) {
  Admission fresh("job", 2);
  EXPECT_EQ(fresh.Check(header_, user_id_).code(), absl::StatusCode::kUnavailable);
  header_.set_membership_epoch(0);
  EXPECT_EQ(fresh.Check(header_, user_id_).code(), absl::StatusCode::kPermissionDenied);
}

TEST_F(AdmissionTest, WhoseHighBitsDifferIsAnother) {
  header_.set_incarnation_high(1);
  EXPECT_EQ(Check(), absl::StatusCode::kFailedPrecondition);
}

TEST_F(AdmissionTest, AnEntryWithoutAnIncarnationLetsNobodyIn) {
  wire::Roster roster;
  roster.set_epoch(4);
  wire::RosterEntry* entry = roster.add_nodes();
  entry->mutable_node()->set_role(wire::WORKER);
  entry->mutable_node()->set_rank(1);
  admission_.SetRoster(roster);
  header_.clear_incarnation();
  EXPECT_EQ(Check(), absl::StatusCode::kPermissionDenied);
}

// A refused sender may be looking for a way in, so a refusal must not help it.
TEST_F(AdmissionTest, ARefusalIsShortAndTellsNothing) {
  const auto expect_bare = [&] {
    EXPECT_FALSE(admission_.Check(header_, user_id_).ok());
    EXPECT_THAT(Words(), ::testing::MatchesRegex("[a-z ]{10,60}"));
    EXPECT_THAT(Words(), Not(HasSubstr("job4711")));
  };
  header_.set_incarnation(78);
  expect_bare();
  header_.set_membership_epoch(4);
  expect_bare();
  header_.mutable_sender()->set_rank(2);
  expect_bare();
  header_.set_job_id("job4711");
  expect_bare();
}
}  // namespace
}  // namespace slimps
