// SPDX-License-Identifier: Apache-2.0
// Names nodes as people read them: "worker 1", "server 0", "scheduler". All functions are
// thread-safe.
#ifndef SLIMPS_PROTO_NET_MEMBERSHIP_NODE_NAME_H_
#define SLIMPS_PROTO_NET_MEMBERSHIP_NODE_NAME_H_

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "proto/slimps.pb.h"

namespace slimps {

// What a node says to a process that counts as dead, after its own name. `slimps launch` knows by
// these words in the report of that process that it may start it again (restarts.py).
inline constexpr char kDoesNotKnow[] = " does not know this process any more";

// Returns "scheduler", "server", "worker", or "role 9" for a number that no role has.
std::string RoleName(wire::Role role);
std::string NodeName(wire::Role role, uint32_t rank);
std::string NodeName(const wire::NodeRef& node);

// Returns "worker 1, worker 4 and 2 more": the first eight by name.
std::string NodeNames(const std::vector<std::pair<wire::Role, uint32_t>>& nodes);

// Returns "1 server" or "2 workers".
std::string CountOf(uint32_t count, wire::Role role);

// Returns the nodes that `roster` lacks of the numbers it declares, as "1 server and 2 workers";
// empty if it is complete.
std::string MissingNodes(const wire::Roster& roster);

}  // namespace slimps

#endif  // SLIMPS_PROTO_NET_MEMBERSHIP_NODE_NAME_H_
