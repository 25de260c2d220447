// SPDX-License-Identifier: Apache-2.0
#include "scheduler/join_log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "proto/base/clock.h"

namespace slimps {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

wire::Header Registration(uint64_t pid, const std::string& host = "beta") {
  wire::Header header;
  header.set_job_id("job");
  header.set_incarnation(pid);
  header.mutable_register_()->set_role(wire::WORKER);
  header.mutable_register_()->set_wanted_rank(-1);
  header.mutable_register_()->set_num_workers(2);
  header.mutable_register_()->set_num_servers(1);
  header.mutable_register_()->set_host(host);
  header.mutable_register_()->set_pid(pid);
  return header;
}

class JoinLogTest : public testing::Test {
 protected:
  JoinLog log_{{.max_lines = 2, .line_every = absl::Seconds(3), .max_remembered = 3}};
  MembershipTable members_{{.job_id = "job", .num_workers = 2, .num_servers = 1}};
};

TEST_F(JoinLogTest, WhoComesIsNamedWithWhoIsMissing) {
  Member server;
  server.entry.mutable_node()->set_role(wire::SERVER);
  server.entry.set_host("alpha");
  server.entry.set_pid(7);
  server.entry.add_endpoints("tcp://10.0.0.3:4711");
  log_.Joined(server, "2 workers");
  log_.Joined(*members_.Register(Registration(9), PeerId{1}, SteadyTime()).value(), "");
  EXPECT_THAT(log_.Take(),
              ElementsAre("server 0 (host alpha, pid 7) listens at tcp://10.0.0.3:4711; missing: "
                          "2 workers",
                          "worker 0 (host beta, pid 9) is there"));
  EXPECT_THAT(log_.Take(), IsEmpty());
}

TEST_F(JoinLogTest, ARepeatedRefusalIsSaidOnce) {
  for (int repeat = 0; repeat < 5; ++repeat) {
    log_.Refused(Registration(17), absl::InvalidArgumentError("wrong counts"), absl::Seconds(1));
  }
  EXPECT_THAT(log_.Take(), SizeIs(1));
  EXPECT_THAT(log_.refusals(), SizeIs(1));
}

TEST_F(JoinLogTest, RefusalsAreSaidByRateAndTheRestIsCounted) {
  for (uint64_t pid = 0; pid < 100; ++pid) {
    log_.Refused(Registration(pid), absl::InvalidArgumentError("no"), absl::Seconds(1));
  }
  EXPECT_THAT(log_.Take(), SizeIs(2));
  EXPECT_THAT(log_.refusals(), SizeIs(3));
  log_.Refused(Registration(100), absl::InvalidArgumentError("no"), absl::Seconds(4));
  EXPECT_THAT(log_.Take(),
              ElementsAre("refused a worker (host beta, pid 100): no (after 98 more refusals)"));
}

TEST_F(JoinLogTest, WhatAStrangerWroteIsCutAndEscaped) {
  log_.Refused(Registration(1, "evil\nI0101 the job has ended"), absl::InvalidArgumentError("no"),
               absl::ZeroDuration());
  log_.Refused(Registration(2, std::string(100'000, 'x')),
               absl::InvalidArgumentError(std::string(100'000, 'y')), absl::ZeroDuration());
  const std::vector<std::string> lines = log_.Take();
  ASSERT_THAT(lines, SizeIs(2));
  EXPECT_THAT(lines[0], HasSubstr("evil\\nI0101"));
  EXPECT_LT(lines[1].size(), 1000u);
}

}  // namespace
}  // namespace slimps
