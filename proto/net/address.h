// Addresses as people and rosters write them: "tcp://host:port" and "ipc://path". Thread-safe.
#ifndef SLIMPS_PROTO_NET_ADDRESS_H_
#define SLIMPS_PROTO_NET_ADDRESS_H_

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace slimps {

struct Address {
  enum class Kind { kTcp, kIpc };
  Kind kind = Kind::kTcp;
  std::string host;  // tcp: as written
  uint16_t port = 0;
  std::string path;  // ipc; "@name" has no file (Linux's abstract kind)

  std::string ToString() const;
};

// InvalidArgument, quoting `text`, for anything else.
[[nodiscard]] absl::StatusOr<Address> ParseAddress(std::string_view text);

// The IPv4 address of a host name; a numeric address, "*" and the name of a network interface are
// given back as they are. Asks the system's resolver, and so may block.
[[nodiscard]] std::string ResolveForBind(const std::string& host);

// The IPv4 address of this machine by which it reaches `host` (a name or a numeric address): "127.0.0.1" for itself by
// loopback, `host` itself where that is an address of this machine. Nothing is sent, but the resolver may be asked.
// NotFound: nobody knows the host. Unavailable: there is no route to it.
[[nodiscard]] absl::StatusOr<std::string> RouteAddress(const std::string& host);

// Whether only this machine reaches a host: a numeric address of the loopback interface, or localhost.
[[nodiscard]] bool IsLoopback(std::string_view host);

// Whether a process listens on this ipc path, though it may be behind in accepting. Does not block.
[[nodiscard]] bool IpcPathIsServed(const std::string& path);

}  // namespace slimps

#endif  // SLIMPS_PROTO_NET_ADDRESS_H_
