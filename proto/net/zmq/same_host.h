// SPDX-License-Identifier: Apache-2.0
// Chooses how two nodes on one machine talk: over the network, over a local socket, or over a local
// socket with payloads in shared memory.
//
//   transport.Bind(UnusedIpcAddress());   // beside the tcp address
//   SLIMPS_ASSIGN_OR_RETURN(
//       std::string endpoint,
//       ChooseEndpoint({"tcp://10.0.0.3:4711", "ipc://@..."}, SameHost::kShm));
//
// All functions are thread-safe.
#ifndef SLIMPS_PROTO_NET_ZMQ_SAME_HOST_H_
#define SLIMPS_PROTO_NET_ZMQ_SAME_HOST_H_

#include <span>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace slimps {

struct ZmqTransportOptions;

enum class SameHost { kTcp, kIpc, kShm };

// Returns the choice named "tcp", "ipc" or "shm".
// InvalidArgument: `text` is none of these; the message quotes it.
[[nodiscard]] absl::StatusOr<SameHost> ParseSameHost(std::string_view text);
std::string_view SameHostName(SameHost same_host);

// Chooses among the endpoints of one node. Returns the first ipc endpoint that a process of this
// user listens on here (LocalSocketIsOurs), unless `same_host` is kTcp; else the first endpoint of
// another kind. Connects in order to try, but does not block.
// InvalidArgument: no endpoint is left.
[[nodiscard]] absl::StatusOr<std::string> ChooseEndpoint(std::span<const std::string> endpoints,
                                                         SameHost same_host);

// Sets up `options` and the payload buffers of this process for kShm.
// Unavailable: this system cannot share memory. `options` are unchanged, and payloads travel
// in-line.
[[nodiscard]] absl::Status ShareMemory(ZmqTransportOptions* options);

}  // namespace slimps

#endif  // SLIMPS_PROTO_NET_ZMQ_SAME_HOST_H_
