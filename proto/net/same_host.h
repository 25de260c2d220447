// How two nodes on one machine talk: over the network, over a local socket, or over a local socket with payloads in
// shared memory.
//
//   transport.Bind(UnusedIpcAddress());                                  // beside the tcp address
//   SLIMPS_ASSIGN_OR_RETURN(std::string endpoint, ChooseEndpoint({"tcp://10.0.0.3:4711", "ipc://@..."}, SameHost::kShm));
//
// Thread-safe.
#ifndef SLIMPS_PROTO_NET_SAME_HOST_H_
#define SLIMPS_PROTO_NET_SAME_HOST_H_

#include <span>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace slimps {

struct ZmqTransportOptions;

enum class SameHost { kTcp, kIpc, kShm };

// "tcp", "ipc", "shm". InvalidArgument, quoting `text`, for anything else.
[[nodiscard]] absl::StatusOr<SameHost> ParseSameHost(std::string_view text);
std::string_view SameHostName(SameHost same_host);

// An ipc address that nobody has. It is of Linux's abstract kind: no file is made or left behind, and only processes
// of this machine and this network namespace reach it.
[[nodiscard]] std::string UnusedIpcAddress();

// Of one node's endpoints: the first ipc one that is served here, unless `same_host` is kTcp; else the first of another
// kind. Connects to try; does not block. InvalidArgument: none is left.
[[nodiscard]] absl::StatusOr<std::string> ChooseEndpoint(std::span<const std::string> endpoints,
                                                         SameHost same_host);

// Sets `options` up for kShm, and the process's payload buffers with it. Unavailable: this system cannot; the options
// are as before, and payloads travel in-line.
[[nodiscard]] absl::Status ShareMemory(ZmqTransportOptions* options);

}  // namespace slimps

#endif  // SLIMPS_PROTO_NET_SAME_HOST_H_
