// SPDX-License-Identifier: Apache-2.0
#include "proto/net/queue/wakeup.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>

#include "proto/base/clock.h"
#include "proto/base/simulation/simulation.h"

namespace slimps {

Wakeup::Wakeup(const Clock* clock) : clock_(clock), fd_(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) {}

Wakeup::~Wakeup() {
  if (fd_ >= 0) close(fd_);
}

void Wakeup::Signal() {
  if (simulation::Active()) {
    signalled_ = true;
    simulation::WakeAll(this);
    return;
  }
  // The first Signal since the last Clear wakes the sleeper; others need no system call.
  if (signalled_.exchange(true) || !asleep_) return;
  const uint64_t one = 1;
  // The write can fail only by overflow, and then the fd is readable anyway.
  [[maybe_unused]] const ssize_t written = write(fd_, &one, sizeof(one));
}

void Wakeup::Sleep(std::vector<pollfd>* others, SteadyTime until) {
  if (simulation::Active()) {
    if (!signalled_) (void)simulation::Block(this, "a signal", until - SteadyTime());
    return;
  }
  others->push_back({.fd = fd_, .events = POLLIN, .revents = 0});
  asleep_ = true;
  timespec wait{};
  if (!signalled_) {
    wait =
        absl::ToTimespec(std::clamp(until - clock_->Now(), absl::ZeroDuration(), absl::Hours(24)));
  }
  ppoll(others->data(), others->size(), &wait, nullptr);
  asleep_ = false;
  if (others->back().revents != 0) {
    uint64_t count = 0;
    [[maybe_unused]] const ssize_t got = read(fd_, &count, sizeof(count));
  }
  others->pop_back();
}

}  // namespace slimps
