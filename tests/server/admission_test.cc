#include "server/admission.h"

#include "gtest/gtest.h"
#include "proto/slimps.pb.h"

namespace slimps {
namespace {

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
  absl::StatusCode Check() { return admission_.Check(header_).code(); }

  Admission admission_{"job", 2};
  wire::Header header_;
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
}
}  // namespace
}  // namespace slimps
