// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "proto/net/membership/node_name.h"
#include "proto/net/membership/resolve.h"

namespace slimps {
namespace {

using ::testing::HasSubstr;

TEST(ResolveAddress, NamesBecomeNumbersAndNumbersStay) {
  EXPECT_EQ(ResolveAddress("tcp://localhost:4711").value(), "tcp://127.0.0.1:4711");
  EXPECT_EQ(ResolveAddress("tcp://127.0.0.1:1").value(), "tcp://127.0.0.1:1");
  EXPECT_EQ(ResolveAddress("tcp://[::1]:65535").value(), "tcp://[::1]:65535");
}

TEST(ResolveAddress, OtherSchemesPassUnchanged) {
  EXPECT_EQ(ResolveAddress("ipc:///tmp/x").value(), "ipc:///tmp/x");
  EXPECT_EQ(ResolveAddress("inproc://scheduler").value(), "inproc://scheduler");
}

TEST(ResolveAddress, WhatIsNoAddressIsRefusedQuotingIt) {
  for (const char* bad : {"tcp://", "tcp://host", "tcp://:1", "tcp://host:", "tcp://host:0",
                          "tcp://host:65536", "tcp://host:x"}) {
    const absl::Status status = ResolveAddress(bad).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << bad;
    EXPECT_THAT(std::string(status.message()), HasSubstr(bad));
  }
}

TEST(ResolveAddress, AnUnknownHostIsNamed) {
  const absl::Status status = ResolveAddress("tcp://no-such-host.invalid:1").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(status.message()), HasSubstr("no-such-host.invalid"));
}

TEST(NodeName, ReadsAsPeopleSayIt) {
  EXPECT_EQ(NodeName(wire::WORKER, 3), "worker 3");
  EXPECT_EQ(NodeName(wire::SCHEDULER, 0), "scheduler");
  EXPECT_EQ(CountOf(1, wire::SERVER), "1 server");
  EXPECT_EQ(CountOf(2, wire::WORKER), "2 workers");
}

TEST(MissingNodes, NamesRolesAndNumbers) {
  wire::Roster roster;
  roster.set_num_servers(1);
  roster.set_num_workers(2);
  EXPECT_EQ(MissingNodes(roster), "1 server and 2 workers");
  roster.add_nodes()->mutable_node()->set_role(wire::SERVER);
  EXPECT_EQ(MissingNodes(roster), "2 workers");
  for (int i = 0; i < 2; ++i) roster.add_nodes()->mutable_node()->set_role(wire::WORKER);
  EXPECT_EQ(MissingNodes(roster), "");
}

}  // namespace
}  // namespace slimps
