// SPDX-License-Identifier: Apache-2.0
// Parses, resolves and tests transport addresses as people and rosters write them:
// "tcp://host:port" and "ipc://path". With the public key of who must listen there, in hexadecimal:
// "tcp://key@host:port". All functions are thread-safe.
//
//   SLIMPS_ASSIGN_OR_RETURN(Address address, ParseAddress("tcp://server-3:4711"));
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
  std::string host;  // of a tcp address, as written
  uint16_t port = 0;
  std::string key;   // of a tcp address: 64 hexadecimal digits; "" if none is given
  std::string path;  // of an ipc address; "@name" is Linux's abstract kind, which has no file

  std::string ToString() const;
};

// Returns the address that `text` writes. A port of "*" is port 0.
// InvalidArgument: `text` is no address; the message quotes it.
[[nodiscard]] absl::StatusOr<Address> ParseAddress(std::string_view text);

// Returns the first IPv4 address of a host name, or of a numeric address itself. Asks the system's
// resolver and may block.
// NotFound: the resolver does not know the host; the message names it.
[[nodiscard]] absl::StatusOr<std::string> ResolveIPv4(const std::string& host);

// Returns the address with its host name resolved by ResolveIPv4: "tcp://localhost:4711" becomes
// "tcp://127.0.0.1:4711". Addresses of other schemes pass unchanged.
// InvalidArgument: the address is not tcp://host:port.
// NotFound: as for ResolveIPv4.
[[nodiscard]] absl::StatusOr<std::string> ResolveAddress(std::string_view text);

// Returns a tcp address with the public key of who must listen there, in hexadecimal. With "" for a
// key, and for other schemes, returns the address unchanged.
// InvalidArgument: the address is not tcp://host:port, or the key is none.
[[nodiscard]] absl::StatusOr<std::string> WithKey(std::string_view text, const std::string& key);

// Returns ResolveIPv4(host). Returns "*" and what the resolver does not know (the name of a network
// interface) as they are.
[[nodiscard]] std::string ResolveForBind(const std::string& host);

// Returns why other machines do not reach what listens at `host`: it is a name, other than
// localhost, of a loopback address, as Debian's installer writes 127.0.1.1 into /etc/hosts.
[[nodiscard]] absl::Status CheckName(const std::string& host);

// Returns the IPv4 address from which this machine reaches `host` (a name or a numeric address). It
// is "127.0.0.1" when `host` is this machine by loopback, and `host` itself when that is an address
// of this machine. Sends nothing, but may ask the resolver and block.
// NotFound: the resolver does not know the host.
// Unavailable: there is no route to the host.
[[nodiscard]] absl::StatusOr<std::string> RouteAddress(const std::string& host);

// True if only this machine reaches `host`: it is a numeric loopback address or "localhost".
[[nodiscard]] bool IsLoopback(std::string_view host);

// True if a process listens on this ipc path, even if its queue of connections is full. Does not
// block.
[[nodiscard]] bool IpcPathIsServed(const std::string& path);

}  // namespace slimps

#endif  // SLIMPS_PROTO_NET_ADDRESS_H_
