// SPDX-License-Identifier: Apache-2.0
#include "proto/net/membership/resolve.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace slimps {
namespace {

std::string NumericHost(const addrinfo& info) {
  char text[INET6_ADDRSTRLEN] = {};
  if (info.ai_family == AF_INET) {
    const auto* in = reinterpret_cast<const sockaddr_in*>(info.ai_addr);
    inet_ntop(AF_INET, &in->sin_addr, text, sizeof(text));
    return text;
  }
  const auto* in6 = reinterpret_cast<const sockaddr_in6*>(info.ai_addr);
  inet_ntop(AF_INET6, &in6->sin6_addr, text, sizeof(text));
  return absl::StrCat("[", text, "]");
}

}  // namespace

absl::StatusOr<std::string> ResolveAddress(std::string_view address) {
  constexpr std::string_view kScheme = "tcp://";
  if (address.substr(0, kScheme.size()) != kScheme) return std::string(address);
  const std::string_view rest = address.substr(kScheme.size());
  const size_t colon = rest.rfind(':');
  int32_t port = 0;
  if (colon == std::string_view::npos || colon == 0 ||
      !absl::SimpleAtoi(std::string(rest.substr(colon + 1)), &port) || port < 1 || port > 65535) {
    return absl::InvalidArgumentError(
        absl::StrCat("expected tcp://host:port, got \"", std::string(address), "\""));
  }
  std::string host(rest.substr(0, colon));
  if (host.size() > 2 && host.front() == '[' && host.back() == ']') {
    host = host.substr(1, host.size() - 2);
  }
  addrinfo hints = {};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int error = getaddrinfo(host.c_str(), nullptr, &hints, &found);
  if (error != 0) {
    return absl::NotFoundError(absl::StrCat("cannot resolve host \"", host, "\" of ",
                                            std::string(address), ": ", gai_strerror(error)));
  }
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> owner(found, freeaddrinfo);
  const addrinfo* best = nullptr;
  for (const addrinfo* info = found; info != nullptr; info = info->ai_next) {
    if (info->ai_family == AF_INET) {
      best = info;
      break;
    }
    if (info->ai_family == AF_INET6 && best == nullptr) best = info;
  }
  if (best == nullptr) {
    return absl::NotFoundError(absl::StrCat("host \"", host, "\" has no IP address"));
  }
  return absl::StrCat(std::string(kScheme), NumericHost(*best), ":", port);
}

}  // namespace slimps
