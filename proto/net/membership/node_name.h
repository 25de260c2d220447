// Nodes as people read them: "worker 1", "server 0", "scheduler".
#ifndef SLIMPS_PROTO_NET_MEMBERSHIP_NODE_NAME_H_
#define SLIMPS_PROTO_NET_MEMBERSHIP_NODE_NAME_H_

#include <cstdint>
#include <string>

#include "proto/slimps.pb.h"

namespace slimps {

// "scheduler", "server", "worker", or "role 9" for a number that no role has.
std::string RoleName(wire::Role role);
std::string NodeName(wire::Role role, uint32_t rank);
std::string NodeName(const wire::NodeRef& node);
// "1 server", "2 workers".
std::string CountOf(uint32_t count, wire::Role role);
// "1 server and 2 workers": those that `roster` lacks of the numbers it declares; empty when it is
// complete.
std::string MissingNodes(const wire::Roster& roster);

}  // namespace slimps

#endif  // SLIMPS_PROTO_NET_MEMBERSHIP_NODE_NAME_H_
