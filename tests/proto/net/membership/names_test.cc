// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <utility>
#include <vector>

#include "proto/net/membership/node_name.h"

namespace slimps {
namespace {

TEST(NodeName, ReadsAsPeopleSayIt) {
  EXPECT_EQ(NodeName(wire::WORKER, 3), "worker 3");
  EXPECT_EQ(NodeName(wire::SCHEDULER, 0), "scheduler");
  EXPECT_EQ(CountOf(1, wire::SERVER), "1 server");
  EXPECT_EQ(CountOf(2, wire::WORKER), "2 workers");
}

TEST(NodeNames, TheFirstEightAreNamedAndTheOthersCounted) {
  EXPECT_EQ(NodeNames({{wire::SERVER, 0}, {wire::WORKER, 2}}), "server 0, worker 2");
  std::vector<std::pair<wire::Role, uint32_t>> nodes;
  for (uint32_t rank = 0; rank < 10; ++rank) nodes.push_back({wire::WORKER, rank});
  EXPECT_THAT(NodeNames(nodes), ::testing::EndsWith("worker 6, worker 7 and 2 more"));
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
