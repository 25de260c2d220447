// SPDX-License-Identifier: Apache-2.0
#include "proto/net/shared/process_watch.h"

#include <poll.h>
#include <sys/epoll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <limits>

#include "absl/strings/str_cat.h"

namespace slimps {
namespace {

// Opens a pidfd. glibc 2.35 and older have no wrapper for it.
int OpenPidfd(uint64_t pid) {
  return static_cast<int>(syscall(SYS_pidfd_open, static_cast<pid_t>(pid), 0));
}

bool HasEnded(int pidfd) {
  pollfd item{pidfd, POLLIN, 0};
  return poll(&item, 1, 0) > 0;  // negative: a signal interrupted it, so nothing is known
}

absl::Status HasEndedError(uint64_t pid) {
  return absl::NotFoundError(absl::StrCat("process ", pid, " cannot be watched: it has ended"));
}

absl::Status CannotWatch(uint64_t pid, int error) {
  if (error == ESRCH) return HasEndedError(pid);
  return absl::UnavailableError(
      absl::StrCat("process ", pid, " cannot be watched: ", std::strerror(error)));
}

}  // namespace

ProcessWatch::ProcessWatch() : epoll_(epoll_create1(EPOLL_CLOEXEC)) {}

ProcessWatch::~ProcessWatch() {
  for (const auto& [pid, pidfd] : pidfds_) close(pidfd);
  if (epoll_ >= 0) close(epoll_);
}

absl::Status ProcessWatch::Add(uint64_t pid) {
  if (const auto known = pidfds_.find(pid); known != pidfds_.end()) {
    return HasEnded(known->second) ? HasEndedError(pid) : absl::OkStatus();
  }
  // Cut down to pid_t, the number would name another process.
  if (pid > static_cast<uint64_t>(std::numeric_limits<pid_t>::max())) {
    return absl::NotFoundError(
        absl::StrCat("process ", pid, " cannot be watched: no process has such a number"));
  }
  const int pidfd = OpenPidfd(pid);
  if (pidfd < 0) return CannotWatch(pid, errno);
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.u64 = pid;
  const bool has_ended = HasEnded(pidfd);
  if (has_ended || epoll_ctl(epoll_, EPOLL_CTL_ADD, pidfd, &event) != 0) {
    const int error = has_ended ? ESRCH : errno;
    close(pidfd);
    return CannotWatch(pid, error);
  }
  pidfds_.emplace(pid, pidfd);
  return absl::OkStatus();
}

void ProcessWatch::Remove(uint64_t pid) {
  const auto found = pidfds_.find(pid);
  if (found == pidfds_.end()) return;
  epoll_ctl(epoll_, EPOLL_CTL_DEL, found->second, nullptr);
  close(found->second);
  pidfds_.erase(found);
}

std::vector<uint64_t> ProcessWatch::TakeEnded() {
  std::vector<uint64_t> ended;
  epoll_event events[16];
  for (;;) {
    const int count = epoll_wait(epoll_, events, 16, 0);
    for (int i = 0; i < count; ++i) {
      ended.push_back(events[i].data.u64);
      Remove(events[i].data.u64);
    }
    if (count < 16) return ended;
  }
}

}  // namespace slimps
