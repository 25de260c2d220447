// SPDX-License-Identifier: Apache-2.0
#include "proto/net/address.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <charconv>
#include <cstddef>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "proto/base/status_macros.h"

namespace slimps {
namespace {

constexpr std::string_view kTcp = "tcp://";
constexpr std::string_view kIpc = "ipc://";
constexpr size_t kKeyDigits = 64;

absl::Status NoAddress(std::string_view text, const char* why) {
  return absl::InvalidArgumentError(absl::StrCat("'", std::string(text), "' is no address: ", why,
                                                 "; expected tcp://host:port or ipc://path"));
}

bool IsKey(const std::string& text) {
  return text.size() == kKeyDigits &&
         std::ranges::all_of(text, [](unsigned char c) { return std::isxdigit(c) != 0; });
}

absl::StatusOr<Address> ParseTcp(std::string_view text) {
  std::string_view rest = text.substr(kTcp.size());
  Address address;
  if (const size_t at = rest.find('@'); at != std::string_view::npos) {
    address.key = std::string(rest.substr(0, at));
    rest.remove_prefix(at + 1);
    if (!IsKey(address.key)) return NoAddress(text, "the key before @ has not 64 hex digits");
  }
  const size_t colon = rest.rfind(':');
  if (colon == std::string_view::npos || colon == 0) return NoAddress(text, "host or port missing");
  address.host = std::string(rest.substr(0, colon));
  for (const char c : address.host) {
    const bool allowed =
        std::isalnum(static_cast<unsigned char>(c)) || c == '.' || c == '-' || c == '_' || c == '*';
    if (!allowed) return NoAddress(text, "the host has a character that host names have not");
  }
  const std::string_view port = rest.substr(colon + 1);
  if (port == "*") return address;
  const auto [end, error] = std::from_chars(port.data(), port.data() + port.size(), address.port);
  if (error != std::errc() || end != port.data() + port.size()) {
    return NoAddress(text, "the port is no number from 0 to 65535");
  }
  return address;
}

// Sets the first address of a host, of the family. Returns getaddrinfo's error or 0.
template <typename Sockaddr>
int FirstAddress(const std::string& host, int family, Sockaddr* first) {
  addrinfo hints{};
  hints.ai_family = family;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (const int error = getaddrinfo(host.c_str(), nullptr, &hints, &found); error != 0) {
    return error;
  }
  std::memcpy(first, found->ai_addr, sizeof(*first));
  freeaddrinfo(found);
  return 0;
}

// Returns the first IPv4 address of a host.
absl::StatusOr<in_addr> Resolve(const std::string& host) {
  sockaddr_in first{};
  const int error = FirstAddress(host, AF_INET, &first);
  if (error == 0) return first.sin_addr;
  sockaddr_in6 other{};
  const bool has_other = FirstAddress(host, AF_INET6, &other) == 0;
  return absl::NotFoundError(absl::StrCat(
      "cannot resolve host \"", host, "\": ",
      has_other ? "it has IPv6 addresses alone, expected an IPv4 address" : gai_strerror(error)));
}

std::string TextOf(const in_addr& address) {
  char text[INET_ADDRSTRLEN] = {};
  inet_ntop(AF_INET, &address, text, sizeof(text));
  return text;
}

}  // namespace

std::string Address::ToString() const {
  if (kind == Kind::kIpc) return absl::StrCat(std::string(kIpc), path);
  return absl::StrCat(std::string(kTcp), key, key.empty() ? "" : "@", host, ":", port);
}

absl::StatusOr<Address> ParseAddress(std::string_view text) {
  if (text.size() > 1024 || text.find('\0') != std::string_view::npos) {
    return NoAddress(text.substr(0, 64), "too long, or holds a zero byte");
  }
  if (text.starts_with(kTcp)) return ParseTcp(text);
  if (text.substr(0, kIpc.size()) != kIpc) return NoAddress(text, "unknown kind");
  Address address;
  address.kind = Address::Kind::kIpc;
  address.path = std::string(text.substr(kIpc.size()));
  if (address.path.empty() || address.path == "*") return NoAddress(text, "the path is missing");
  if (address.path.size() >= sizeof(sockaddr_un::sun_path)) {
    return NoAddress(text, "the path is longer than the system's 107 bytes");
  }
  return address;
}

absl::StatusOr<std::string> ResolveIPv4(const std::string& host) {
  SLIMPS_ASSIGN_OR_RETURN(const in_addr address, Resolve(host));
  return TextOf(address);
}

absl::StatusOr<std::string> ResolveAddress(std::string_view text) {
  if (!text.starts_with(kTcp)) return std::string(text);
  SLIMPS_ASSIGN_OR_RETURN(Address address, ParseTcp(text));
  if (address.port == 0) return NoAddress(text, "the port is no number from 1 to 65535");
  SLIMPS_ASSIGN_OR_RETURN(address.host, ResolveIPv4(address.host));
  return address.ToString();
}

absl::StatusOr<std::string> WithKey(std::string_view text, const std::string& key) {
  if (key.empty() || !text.starts_with(kTcp)) return std::string(text);
  SLIMPS_ASSIGN_OR_RETURN(Address address, ParseTcp(text));
  address.key = key;
  if (!IsKey(key)) return NoAddress(address.ToString(), "the key before @ has not 64 hex digits");
  return address.ToString();
}

std::string ResolveForBind(const std::string& host) {
  return host == "*" ? host : ResolveIPv4(host).value_or(host);
}

absl::StatusOr<std::string> RouteAddress(const std::string& host) {
  sockaddr_in to{}, own{};
  to.sin_family = AF_INET;
  to.sin_port = htons(9);
  SLIMPS_ASSIGN_OR_RETURN(to.sin_addr, Resolve(host));
  const int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  socklen_t bytes = sizeof(own);
  // Connecting a datagram socket sends nothing. The system chooses the route, and with it this
  // machine's address.
  const bool routed = fd >= 0 &&
                      connect(fd, reinterpret_cast<const sockaddr*>(&to), sizeof(to)) == 0 &&
                      getsockname(fd, reinterpret_cast<sockaddr*>(&own), &bytes) == 0;
  const int why = errno;
  if (fd >= 0) close(fd);
  if (!routed) {
    return absl::UnavailableError(
        absl::StrCat("there is no route to host \"", host, "\": ", std::strerror(why)));
  }
  return TextOf(own.sin_addr);
}

absl::Status CheckName(const std::string& host) {
  const std::string address = ResolveForBind(host);
  if (address == host || IsLoopback(host) || !IsLoopback(address)) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(host, " is ", address,
                   " here, as /etc/hosts says: other machines, where the name means this "
                   "one, do not reach what listens there; give the address that they reach"));
}

bool IsLoopback(std::string_view host) {
  return host == "localhost" || host == "::1" || host == "[::1]" ||
         (host.starts_with("127.") && host.find_first_not_of("0123456789.") == host.npos);
}

bool IpcPathIsServed(const std::string& path) {
  const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd < 0) return false;
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const size_t length = std::min(path.size(), sizeof(address.sun_path) - 1);
  std::memcpy(address.sun_path, path.data(), length);
  const bool abstract = path.starts_with("@");
  if (abstract) address.sun_path[0] = '\0';
  // An abstract name has no terminating zero: it ends where the address ends.
  const size_t bytes = offsetof(sockaddr_un, sun_path) + length + (abstract ? 0 : 1);
  int rc = 0;
  do {
    rc = connect(fd, reinterpret_cast<const sockaddr*>(&address), static_cast<socklen_t>(bytes));
  } while (rc != 0 && errno == EINTR);
  // A process listens, but its queue of connections is full.
  const bool is_behind = rc != 0 && errno == EAGAIN;
  close(fd);
  return rc == 0 || is_behind;
}

}  // namespace slimps
