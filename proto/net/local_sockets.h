// SPDX-License-Identifier: Apache-2.0
// Local (ipc) sockets between processes of one user on one machine. They are files in a directory
// that only this user can enter, /tmp/slimps-UID (docs/decisions/same-host.md). Thread-safe.
//
//   SLIMPS_ASSIGN_OR_RETURN(const std::string address, UnusedLocalAddress());   // to listen on
//   if (LocalSocketIsOurs(path)) ...                                            // to connect to
#ifndef SLIMPS_PROTO_NET_LOCAL_SOCKETS_H_
#define SLIMPS_PROTO_NET_LOCAL_SOCKETS_H_

#include <string>

#include "absl/status/statusor.h"

namespace slimps {

// Returns "/tmp/slimps-UID".
[[nodiscard]] std::string LocalSocketDirectory();

// Returns an ipc address that nobody has. Makes the directory, and removes what processes that were
// killed have left there.
// PermissionDenied: the directory belongs to another user, or others can enter it.
// Unavailable: the directory cannot be made.
[[nodiscard]] absl::StatusOr<std::string> UnusedLocalAddress(
    const std::string& directory = LocalSocketDirectory());

// True if a process of this user, on this machine and in this network namespace, listens at the
// path. A node in a namespace of its own, with a link of its own, counts as another machine.
// Connects in order to try, but does not block.
[[nodiscard]] bool LocalSocketIsOurs(const std::string& path,
                                     const std::string& directory = LocalSocketDirectory());

}  // namespace slimps

#endif  // SLIMPS_PROTO_NET_LOCAL_SOCKETS_H_
