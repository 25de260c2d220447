// Two file descriptors to poll beside sockets: one that any thread can make readable, one that a
// time makes readable (zmq_poll alone counts in milliseconds, too coarse for an emulated link).
#ifndef SLIMPS_PROTO_NET_WAKEUP_H_
#define SLIMPS_PROTO_NET_WAKEUP_H_

#include <atomic>

#include "absl/time/time.h"

namespace slimps {

// Thread-safe.
class Wakeup final {
 public:
  Wakeup();
  ~Wakeup();
  Wakeup(const Wakeup&) = delete;
  Wakeup& operator=(const Wakeup&) = delete;

  bool ok() const { return fd_ >= 0; }
  int fd() const { return fd_; }
  void Signal();
  // The waiting thread calls it before it looks for work: a Signal after that makes fd() readable
  // again.
  void Clear();

 private:
  const int fd_;
  // Publishes that the fd is readable already, so that a burst of signals is one system call.
  std::atomic<bool> signalled_{false};
};

// Thread-compatible.
class Timer final {
 public:
  Timer();
  ~Timer();
  Timer(const Timer&) = delete;
  Timer& operator=(const Timer&) = delete;

  bool ok() const { return fd_ >= 0; }
  int fd() const { return fd_; }
  // Readable from `when` on, until set again. InfiniteFuture: never.
  void Set(absl::Time when, absl::Time now);

 private:
  const int fd_;
};

}  // namespace slimps

#endif  // SLIMPS_PROTO_NET_WAKEUP_H_
