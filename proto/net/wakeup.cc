#include "proto/net/wakeup.h"

#include <sys/eventfd.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>

namespace slimps {

Wakeup::Wakeup() : fd_(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) {}

Wakeup::~Wakeup() {
  if (fd_ >= 0) close(fd_);
}

void Wakeup::Signal() {
  if (signalled_.exchange(true)) return;
  const uint64_t one = 1;
  // Cannot fail but by overflow, when the fd is readable anyway.
  [[maybe_unused]] const ssize_t written = write(fd_, &one, sizeof(one));
}

void Wakeup::Clear() {
  uint64_t count = 0;
  [[maybe_unused]] const ssize_t got = read(fd_, &count, sizeof(count));
  // After the read: a Signal between the two finds the flag still set and writes nothing, yet what
  // it announces was stored before its exchange, which this store follows, so the caller sees it
  // now.
  signalled_.exchange(false);
}

Timer::Timer() : fd_(timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC)) {}

Timer::~Timer() {
  if (fd_ >= 0) close(fd_);
}

void Timer::Set(absl::Time when, absl::Time now) {
  itimerspec spec{};
  if (when != absl::InfiniteFuture()) {
    // Zero would disarm it, so what is due already is due in a nanosecond.
    const absl::Duration wait = std::clamp(when - now, absl::Nanoseconds(1), absl::Hours(24));
    spec.it_value = absl::ToTimespec(wait);
  }
  timerfd_settime(fd_, 0, &spec, nullptr);
}

}  // namespace slimps
