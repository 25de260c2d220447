// SPDX-License-Identifier: Apache-2.0
// A connection of the HTTP server. A request must come within kTimeout in all, and each part of an
// answer must be taken within kTimeout.
#ifndef SLIMPS_WATCH_HTTP_CONNECTION_H_
#define SLIMPS_WATCH_HTTP_CONNECTION_H_

#include <sys/types.h>

#include <cstddef>

#include "absl/time/time.h"
#include "proto/base/clock.h"

namespace slimps {

// Owned by the thread that serves the connection.
class Connection final {
 public:
  static constexpr absl::Duration kTimeout = absl::Seconds(5);

  // Does not own `socket`. The time for the request begins.
  // REQUIRES: `socket` and `clock` outlive this.
  Connection(int socket, const Clock* clock)
      : socket_(socket), clock_(clock), request_until_(clock->Now() + kTimeout) {}

  // Returns how many bytes it has read: 0 at the end, -1 if none came in time.
  ssize_t Read(char* bytes, size_t size);

  // Returns `size`, or -1 if not all of it was taken in time.
  ssize_t Write(const char* bytes, size_t size);

  int socket() const { return socket_; }

 private:
  // Waits until the socket has one of `events`. Returns false if it has none before `until`.
  bool Await(short events, SteadyTime until) const;  // NOLINT(google-runtime-int): poll's type

  const int socket_;
  const Clock* const clock_;
  const SteadyTime request_until_;
};

}  // namespace slimps

#endif  // SLIMPS_WATCH_HTTP_CONNECTION_H_
