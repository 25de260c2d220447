// SPDX-License-Identifier: Apache-2.0
#include "proto/net/membership/node_name.h"

#include <algorithm>
#include <cstddef>

#include "absl/strings/str_cat.h"

namespace slimps {

std::string RoleName(wire::Role role) {
  switch (role) {
    case wire::SCHEDULER:
      return "scheduler";
    case wire::SERVER:
      return "server";
    case wire::WORKER:
      return "worker";
    default:
      return absl::StrCat("role ", static_cast<int>(role));
  }
}

std::string NodeName(wire::Role role, uint32_t rank) {
  if (role == wire::SCHEDULER) return "scheduler";
  return absl::StrCat(RoleName(role), " ", rank);
}

std::string NodeName(const wire::NodeRef& node) { return NodeName(node.role(), node.rank()); }

std::string NodeNames(const std::vector<std::pair<wire::Role, uint32_t>>& nodes) {
  constexpr size_t kMaxNamed = 8;
  std::string names;
  for (size_t i = 0; i < std::min(nodes.size(), kMaxNamed); ++i) {
    absl::StrAppend(&names, i == 0 ? "" : ", ", NodeName(nodes[i].first, nodes[i].second));
  }
  if (nodes.size() > kMaxNamed) {
    absl::StrAppend(&names, " and ", nodes.size() - kMaxNamed, " more");
  }
  return names;
}

std::string CountOf(uint32_t count, wire::Role role) {
  return absl::StrCat(count, " ", RoleName(role), count == 1 ? "" : "s");
}

std::string MissingNodes(const wire::Roster& roster) {
  uint32_t servers = 0;
  uint32_t workers = 0;
  for (const wire::RosterEntry& entry : roster.nodes()) {
    if (entry.node().role() == wire::SERVER) ++servers;
    if (entry.node().role() == wire::WORKER) ++workers;
  }
  std::string missing;
  if (servers < roster.num_servers())
    missing = CountOf(roster.num_servers() - servers, wire::SERVER);
  if (workers < roster.num_workers()) {
    if (!missing.empty()) missing += " and ";
    missing += CountOf(roster.num_workers() - workers, wire::WORKER);
  }
  return missing;
}

}  // namespace slimps
