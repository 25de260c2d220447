// SPDX-License-Identifier: Apache-2.0
#include "watch/http/connection.h"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>

namespace slimps {

// NOLINTNEXTLINE(google-runtime-int): poll's type
bool Connection::Await(short events, SteadyTime until) const {
  for (;;) {
    const absl::Duration left = std::max(absl::ZeroDuration(), until - clock_->Now());
    pollfd waiting{.fd = socket_, .events = events, .revents = 0};
    const int ready = poll(&waiting, 1, static_cast<int>(absl::ToInt64Milliseconds(left)));
    if (ready >= 0 || errno != EINTR) return ready > 0;
  }
}

ssize_t Connection::Read(char* bytes, size_t size) {
  // Otherwise a client that sends a byte now and then would be read for ever.
  if (clock_->Now() >= request_until_ || !Await(POLLIN, request_until_)) return -1;
  return recv(socket_, bytes, size, MSG_DONTWAIT);
}

ssize_t Connection::Write(const char* bytes, size_t size) {
  const SteadyTime until = clock_->Now() + kTimeout;
  for (size_t written = 0; written < size;) {
    if (clock_->Now() >= until || !Await(POLLOUT, until)) return -1;
    const ssize_t n = send(socket_, bytes + written, size - written, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (n < 0 && errno != EAGAIN && errno != EINTR) return -1;
    if (n > 0) written += static_cast<size_t>(n);
  }
  return static_cast<ssize_t>(size);
}

}  // namespace slimps
