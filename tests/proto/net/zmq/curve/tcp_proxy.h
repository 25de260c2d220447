// SPDX-License-Identifier: Apache-2.0
// Stands between a client and a server on TCP, passes their bytes on, and can slip in others.
#ifndef SLIMPS_TESTS_PROTO_NET_ZMQ_CURVE_TCP_PROXY_H_
#define SLIMPS_TESTS_PROTO_NET_ZMQ_CURVE_TCP_PROXY_H_

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <mutex>
#include <string>
#include <thread>

#include "absl/strings/str_cat.h"

namespace slimps {

// Takes one connection after the other. Thread-safe.
class TcpProxy final {
 public:
  // `port` is the server's, on this machine.
  explicit TcpProxy(uint16_t port) : port_(port), listener_(Socket()) {
    sockaddr_in own = Loopback(0);
    socklen_t size = sizeof(own);
    bind(listener_, reinterpret_cast<const sockaddr*>(&own), size);
    listen(listener_, 8);
    getsockname(listener_, reinterpret_cast<sockaddr*>(&own), &size);
    address_ = absl::StrCat("tcp://127.0.0.1:", ntohs(own.sin_port));
    thread_ = std::thread([this] { Run(); });
  }
  ~TcpProxy() {
    stopping_ = true;
    thread_.join();
    close(listener_);
  }
  TcpProxy(const TcpProxy&) = delete;
  TcpProxy& operator=(const TcpProxy&) = delete;

  const std::string& address() const { return address_; }

  // Sends `bytes` to the server, between two reads of the client's.
  void SlipIn(const std::string& bytes) {
    const std::lock_guard lock(mutex_);
    slipped_in_ += bytes;
  }
  int connections() const { return connections_; }

 private:
  static int Socket() { return socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0); }
  static sockaddr_in Loopback(uint16_t port) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    return address;
  }

  void Run() {
    while (!stopping_) {
      pollfd one{.fd = listener_, .events = POLLIN, .revents = 0};
      if (poll(&one, 1, 5) <= 0) continue;
      const int client = accept(listener_, nullptr, nullptr);
      const int server = Socket();
      const sockaddr_in to = Loopback(port_);
      if (connect(server, reinterpret_cast<const sockaddr*>(&to), sizeof(to)) == 0) {
        ++connections_;
        while (!stopping_ && Pass(client, server)) {
        }
      }
      close(client);
      close(server);
    }
  }

  // Returns false once a side has closed.
  bool Pass(int client, int server) {
    std::string slipped_in;
    {
      const std::lock_guard lock(mutex_);
      slipped_in.swap(slipped_in_);
    }
    if (!slipped_in.empty()) send(server, slipped_in.data(), slipped_in.size(), MSG_NOSIGNAL);
    pollfd both[] = {{.fd = client, .events = POLLIN, .revents = 0},
                     {.fd = server, .events = POLLIN, .revents = 0}};
    if (poll(both, 2, 5) <= 0) return true;
    return (both[0].revents == 0 || Copy(client, server)) &&
           (both[1].revents == 0 || Copy(server, client));
  }

  static bool Copy(int from, int to) {
    char bytes[65536];
    const ssize_t got = recv(from, bytes, sizeof(bytes), 0);
    return got > 0 && send(to, bytes, static_cast<size_t>(got), MSG_NOSIGNAL) == got;
  }

  const uint16_t port_;
  const int listener_;
  std::string address_;
  std::mutex mutex_;
  std::string slipped_in_;
  std::atomic<bool> stopping_{false};
  std::atomic<int> connections_{0};
  std::thread thread_;
};

}  // namespace slimps

#endif  // SLIMPS_TESTS_PROTO_NET_ZMQ_CURVE_TCP_PROXY_H_
