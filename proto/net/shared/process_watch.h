// SPDX-License-Identifier: Apache-2.0
// Tells which processes of this machine have ended. Each watched process is held by a descriptor
// (pidfd), because its number may belong to another process tomorrow.
//
//   SLIMPS_RETURN_IF_ERROR(watch.Add(pid));
//   poll watch.fd(); when it is readable: for (uint64_t pid : watch.TakeEnded()) ...
#ifndef SLIMPS_PROTO_NET_SHARED_PROCESS_WATCH_H_
#define SLIMPS_PROTO_NET_SHARED_PROCESS_WATCH_H_

#include <cstdint>
#include <map>
#include <vector>

#include "absl/status/status.h"

namespace slimps {

// Thread-compatible.
class ProcessWatch final {
 public:
  ProcessWatch();
  ~ProcessWatch();
  ProcessWatch(const ProcessWatch&) = delete;
  ProcessWatch& operator=(const ProcessWatch&) = delete;

  // True if it can watch processes at all.
  bool ok() const { return epoll_ >= 0; }

  // A descriptor that is readable when a watched process has ended.
  int fd() const { return epoll_; }

  // Watches the process. OK means that it lives now and that TakeEnded will name it when it has
  // ended.
  // NotFound: there is no such process, or it has ended.
  // Unavailable: the process cannot be watched.
  [[nodiscard]] absl::Status Add(uint64_t pid);

  void Remove(uint64_t pid);

  // True if the process was added and neither removed nor taken by TakeEnded.
  bool Watches(uint64_t pid) const { return pidfds_.contains(pid); }

  // Returns the watched processes that have ended, and stops watching them.
  std::vector<uint64_t> TakeEnded();

 private:
  const int epoll_;
  std::map<uint64_t, int> pidfds_;
};

}  // namespace slimps

#endif  // SLIMPS_PROTO_NET_SHARED_PROCESS_WATCH_H_
