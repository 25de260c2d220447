// SPDX-License-Identifier: Apache-2.0
// A scheduler of a job with keys believes what the key of a connection says, and nothing else.
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "proto/base/clock.h"
#include "scheduler/scheduler_state.h"

namespace slimps {
namespace {

// Peer n has incarnation n.
class SchedulerKeysTest : public testing::Test {
 protected:
  static AllowedNode Node(wire::Role role, uint32_t rank, char key) {
    return {.role = role, .rank = rank, .public_key = std::string(32, key)};
  }

  static wire::Header HeaderOf(uint64_t incarnation) {
    wire::Header header;
    header.set_job_id("slimps");
    header.set_incarnation(incarnation);
    header.set_request_id(1);
    return header;
  }

  static wire::Header Registration(uint64_t incarnation, wire::Role role, int32_t wanted_rank) {
    wire::Header header = HeaderOf(incarnation);
    wire::Register& registration = *header.mutable_register_();
    registration.set_role(role);
    registration.set_wanted_rank(wanted_rank);
    registration.set_num_workers(2);
    registration.set_num_servers(1);
    registration.add_endpoints("tcp://127.0.0.1:1");
    return header;
  }

  // Returns the answers to the peer with this number.
  std::vector<wire::Header> Tell(uint64_t peer, const wire::Header& header,
                                 const std::string& user_id) {
    std::vector<wire::Header> answers;
    for (auto& outgoing : state_.Handle(PeerId{peer}, header, clock_.Now(), user_id)) {
      if (outgoing.to == PeerId{peer}) answers.push_back(std::move(outgoing.header));
    }
    return answers;
  }

  void ExpectRefused(const std::vector<wire::Header>& answers, const std::string& why) {
    ASSERT_EQ(answers.size(), 1u);
    ASSERT_TRUE(answers[0].has_error()) << answers[0].DebugString();
    EXPECT_EQ(answers[0].error().status().code(), 7u);  // PermissionDenied
    EXPECT_EQ(answers[0].error().status().message(), why);
  }

  std::vector<wire::Header> Join(uint64_t peer, wire::Role role, const std::string& user_id) {
    return Tell(peer, Registration(peer, role, -1), user_id);
  }

  void JoinAll() {
    Join(1, wire::SERVER, "server 0");
    Join(2, wire::WORKER, "worker 0");
    Join(3, wire::WORKER, "worker 1");
    ASSERT_EQ(state_.phase(), SchedulerState::Phase::kRunning);
  }

  static SchedulerOptions Options() {
    return {.num_workers = 2,
            .num_servers = 1,
            .has_journal = true,
            .allowed = {Node(wire::SERVER, 0, 's'), Node(wire::WORKER, 0, 'a'),
                        Node(wire::WORKER, 1, 'b')}};
  }

  FakeClock clock_;
  SchedulerState state_{Options(), clock_.Now()};
};

TEST_F(SchedulerKeysTest, TheKeyDecidesTheRank) {
  const std::vector<wire::Header> answers = Join(9, wire::WORKER, "worker 1");
  ASSERT_FALSE(answers.empty());
  ASSERT_TRUE(answers[0].has_welcome()) << answers[0].DebugString();
  EXPECT_EQ(answers[0].welcome().rank(), 1u);
}

TEST_F(SchedulerKeysTest, AWorkerWhoseKeyIsOfRank1DoesNotGetRank0) {
  ExpectRefused(Tell(9, Registration(9, wire::WORKER, 0), "worker 1"),
                "this is the key of worker 1, and its holder wants to be worker 0");
  ExpectRefused(Tell(9, Registration(9, wire::SERVER, -1), "worker 1"),
                "this is the key of worker 1, and its holder wants to be a server");
  EXPECT_TRUE(state_.members().LiveMembers().empty());
}

TEST_F(SchedulerKeysTest, WithoutAKeyNobodyRegisters) {
  ExpectRefused(Join(9, wire::WORKER, ""), "no key of this job");
  ExpectRefused(Join(9, wire::WORKER, "worker 2"), "no key of this job");
}

TEST_F(SchedulerKeysTest, AMembersIncarnationIsNothingWithoutItsKey) {
  JoinAll();
  for (const std::string& user_id :
       {std::string("worker 1"), std::string("server 0"), std::string()}) {
    wire::Header goodbye = HeaderOf(2);  // worker 0's incarnation
    goodbye.mutable_goodbye();
    ExpectRefused(Tell(9, goodbye, user_id), "this is another node's key");
    wire::Header error = HeaderOf(2);
    error.mutable_error()->mutable_status()->set_code(13);
    ExpectRefused(Tell(9, error, user_id), "this is another node's key");
    ExpectRefused(Tell(9, Registration(2, wire::WORKER, -1), user_id),
                  "this is another node's key");
  }
  EXPECT_EQ(state_.phase(), SchedulerState::Phase::kRunning);
  EXPECT_EQ(state_.members().LiveMembers().size(), 3u);
  EXPECT_FALSE(state_.members().IsConnected(PeerId{9}));
}

TEST_F(SchedulerKeysTest, TheRosterCarriesTheKeysOnceItIsComplete) {
  Join(1, wire::SERVER, "server 0");
  const std::vector<wire::Header> early = Join(2, wire::WORKER, "worker 0");
  ASSERT_EQ(early.size(), 2u);
  for (const wire::RosterEntry& entry : early[1].roster().nodes()) {
    EXPECT_TRUE(entry.public_key().empty());
  }
  const std::vector<wire::Header> answers = Join(3, wire::WORKER, "worker 1");
  ASSERT_EQ(answers.size(), 2u);
  std::vector<std::string> keys;
  for (const wire::RosterEntry& entry : answers[1].roster().nodes()) {
    keys.push_back(entry.public_key());
  }
  EXPECT_EQ(keys, (std::vector<std::string>{std::string(32, 's'), std::string(32, 'a'),
                                            std::string(32, 'b')}));
}

TEST_F(SchedulerKeysTest, ASchedulerThatIsStartedAgainHoldsNodesToTheirKeys) {
  JoinAll();
  SchedulerState again(Options(), clock_.Now());
  ASSERT_TRUE(again.Restore(state_.TakeEntries(), clock_.Now()).ok());
  const wire::Roster roster = again.members().Roster();
  for (const wire::RosterEntry& entry : roster.nodes()) {
    EXPECT_EQ(entry.public_key().size(), 32u) << entry.DebugString();
  }
  wire::Header goodbye = HeaderOf(2);  // worker 0's incarnation
  goodbye.mutable_goodbye();
  again.Handle(PeerId{9}, goodbye, clock_.Now(), "worker 1");
  EXPECT_EQ(again.members().LiveMembers().size(), 3u);
}

}  // namespace
}  // namespace slimps
