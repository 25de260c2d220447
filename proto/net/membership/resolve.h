// SPDX-License-Identifier: Apache-2.0
// Resolves host names in transport addresses.
#ifndef SLIMPS_PROTO_NET_MEMBERSHIP_RESOLVE_H_
#define SLIMPS_PROTO_NET_MEMBERSHIP_RESOLVE_H_

#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace slimps {

// Returns the address with its host name resolved. "tcp://localhost:4711" becomes
// "tcp://127.0.0.1:4711": an IPv4 address if the name has one, else "tcp://[v6]:4711". Numeric
// addresses and other schemes pass unchanged. May block on the network (DNS). Thread-safe.
// InvalidArgument: the address is not tcp://host:port.
// NotFound: the name cannot be resolved.
[[nodiscard]] absl::StatusOr<std::string> ResolveAddress(std::string_view address);

}  // namespace slimps

#endif  // SLIMPS_PROTO_NET_MEMBERSHIP_RESOLVE_H_
