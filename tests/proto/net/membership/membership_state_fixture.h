// SPDX-License-Identifier: Apache-2.0
// A MembershipState under a fake clock. The test plays its scheduler.
#ifndef SLIMPS_TESTS_PROTO_NET_MEMBERSHIP_MEMBERSHIP_STATE_FIXTURE_H_
#define SLIMPS_TESTS_PROTO_NET_MEMBERSHIP_MEMBERSHIP_STATE_FIXTURE_H_

#include <gtest/gtest.h>

#include <vector>

#include "proto/base/clock.h"
#include "proto/net/membership/membership_state.h"

namespace slimps {

class MembershipStateTest : public testing::Test {
 protected:
  static MembershipState::Options Options() {
    MembershipState::Options options;
    options.job_id = "job";
    options.scheduler_address = "tcp://here:1";
    options.registration.set_role(wire::WORKER);
    options.repeat_interval = absl::Seconds(1);
    return options;
  }

  MembershipState::Actions From(wire::Header header) {
    header.set_job_id("job");
    return state_.HandleFromScheduler(header, clock_.Now(), &consumed_);
  }
  MembershipState::Actions Welcome(uint32_t rank) {
    wire::Header header;
    header.mutable_welcome()->set_rank(rank);
    header.mutable_welcome()->set_heartbeat_interval_ms(1000);
    header.mutable_welcome()->set_heartbeat_timeout_ms(5000);
    return From(header);
  }
  static wire::Header Roster(uint64_t epoch, uint32_t workers_there) {
    wire::Header header;
    header.mutable_roster()->set_epoch(epoch);
    header.mutable_roster()->set_num_workers(2);
    for (uint32_t rank = 0; rank < workers_there; ++rank) {
      wire::NodeRef* node = header.mutable_roster()->add_nodes()->mutable_node();
      node->set_role(wire::WORKER);
      node->set_rank(rank);
    }
    return header;
  }
  void Join() {
    state_.StartJoin(clock_.Now(), clock_.Now() + absl::Seconds(60));
    Welcome(1);
    From(Roster(2, 2));
    ASSERT_EQ(state_.phase(), MembershipState::Phase::kMember);
  }
  MembershipState::BarrierId StartBarrier(const std::vector<double>& values = {}) {
    MembershipState::BarrierId id;
    last_ = state_.StartBarrier(
        {.name = "b", .group = wire::WORKER, .purpose = "tea", .values = values}, clock_.Now(),
        &id);
    return id;
  }

  FakeClock clock_;
  MembershipState state_{Options()};
  MembershipState::Actions last_;
  bool consumed_ = false;
};

}  // namespace slimps

#endif  // SLIMPS_TESTS_PROTO_NET_MEMBERSHIP_MEMBERSHIP_STATE_FIXTURE_H_
