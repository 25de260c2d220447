// Which processes of this machine have ended. A process that is watched is known by a descriptor of its own, never by
// its number alone: that may belong to another one tomorrow.
//
//   SLIMPS_RETURN_IF_ERROR(watch.Add(pid));
//   poll watch.fd(); when it is readable: for (uint64_t pid : watch.TakeEnded()) ...
#ifndef SLIMPS_PROTO_NET_PROCESS_WATCH_H_
#define SLIMPS_PROTO_NET_PROCESS_WATCH_H_

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

  // Whether it can watch anything.
  bool ok() const { return epoll_ >= 0; }
  int fd() const { return epoll_; }
  // OK: the process lives, and TakeEnded will name it once it does not. NotFound: it does not live. Unavailable: it cannot
  // be watched.
  [[nodiscard]] absl::Status Add(uint64_t pid);
  void Remove(uint64_t pid);
  // Those that have ended since; they are no longer watched.
  std::vector<uint64_t> TakeEnded();

 private:
  const int epoll_;
  std::map<uint64_t, int> pidfds_;
};

}  // namespace slimps

#endif  // SLIMPS_PROTO_NET_PROCESS_WATCH_H_
