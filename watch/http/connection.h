// SPDX-License-Identifier: Apache-2.0
// A connection of the HTTP server as its library reads and writes it. A request must come within
// kTimeout in all, and each part of an answer must be taken within kTimeout.
#ifndef SLIMPS_WATCH_HTTP_CONNECTION_H_
#define SLIMPS_WATCH_HTTP_CONNECTION_H_

#include <httplib.h>
#include <sys/types.h>

#include <cstddef>
#include <string>

#include "absl/time/time.h"
#include "proto/base/clock.h"

namespace slimps {

// Owned by the thread that serves the connection.
class Connection final : public httplib::Stream {
 public:
  static constexpr absl::Duration kTimeout = absl::Seconds(5);

  // Does not own `socket`. The time for the request begins.
  // REQUIRES: `socket` and `clock` outlive this.
  Connection(int socket, const Clock* clock)
      : socket_(socket), clock_(clock), request_until_(clock->Now() + kTimeout) {}

  bool is_readable() const override { return true; }
  bool is_writable() const override { return true; }

  // Returns how many bytes it has read: 0 at the end, -1 if none came in time.
  ssize_t read(char* bytes, size_t size) override;

  // Returns `size`, or -1 if not all of it was taken in time.
  ssize_t write(const char* bytes, size_t size) override;

  // Nobody asks who the client is.
  void get_remote_ip_and_port(std::string& ip, int& port) const override;
  void get_local_ip_and_port(std::string& ip, int& port) const override;
  int socket() const override { return socket_; }

 private:
  // Waits until the socket has one of `events`. Returns false if it has none before `until`.
  bool Await(short events, SteadyTime until) const;  // NOLINT(google-runtime-int): poll's type

  const int socket_;
  const Clock* const clock_;
  const SteadyTime request_until_;
};

}  // namespace slimps

#endif  // SLIMPS_WATCH_HTTP_CONNECTION_H_
