// SPDX-License-Identifier: Apache-2.0
// A client of HTTP servers, for tests.
//
//   EXPECT_THAT(Get(server->address(), "/metrics"), StartsWith("HTTP/1.1 200 OK\r\n"));
#ifndef SLIMPS_TESTS_WATCH_HTTP_ASKING_H_
#define SLIMPS_TESTS_WATCH_HTTP_ASKING_H_

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <string>

#include "absl/strings/str_cat.h"

namespace slimps {

// Returns false if nothing listens at "127.0.0.1:PORT".
inline bool Connect(int socket_fd, const std::string& address) {
  sockaddr_in to = {};
  to.sin_family = AF_INET;
  to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  to.sin_port = htons(static_cast<uint16_t>(std::stoi(address.substr(address.rfind(':') + 1))));
  return connect(socket_fd, reinterpret_cast<sockaddr*>(&to), sizeof(to)) == 0;
}

// Sends `request` to "127.0.0.1:PORT". Returns all that comes back.
inline std::string Ask(const std::string& address, const std::string& request) {
  const int socket_fd = socket(AF_INET, SOCK_STREAM, 0);
  EXPECT_TRUE(Connect(socket_fd, address));
  EXPECT_EQ(static_cast<ssize_t>(request.size()),
            send(socket_fd, request.data(), request.size(), MSG_NOSIGNAL));
  std::string answer;
  char buffer[4096];
  for (ssize_t n = 0; (n = recv(socket_fd, buffer, sizeof(buffer), 0)) > 0;) {
    answer.append(buffer, static_cast<size_t>(n));
  }
  close(socket_fd);
  return answer;
}

inline std::string Get(const std::string& address, const std::string& path) {
  return Ask(address, absl::StrCat("GET ", path, " HTTP/1.1\r\nHost: localhost\r\n\r\n"));
}

}  // namespace slimps

#endif  // SLIMPS_TESTS_WATCH_HTTP_ASKING_H_
