// How the one thread of a transport sleeps: until sockets have something for it, until a time, or until another thread
// has. poll(2) counts in nanoseconds here: milliseconds are too coarse for an emulated link.
//
//   any thread:   queue.Push(message);  wakeup.Signal();
//   the sleeper:  for (;;) { wakeup.Clear(); DoWhatThereIs(); wakeup.Sleep(fds, NextTime()); }
#ifndef SLIMPS_PROTO_NET_WAKEUP_H_
#define SLIMPS_PROTO_NET_WAKEUP_H_

#include <poll.h>

#include <atomic>
#include <vector>

#include "absl/time/time.h"
#include "proto/base/clock.h"

namespace slimps {

// Thread-safe, but for Clear and Sleep, which are the sleeping thread's.
class Wakeup final {
 public:
  explicit Wakeup(const Clock* clock = MachineClock());
  ~Wakeup();
  Wakeup(const Wakeup&) = delete;
  Wakeup& operator=(const Wakeup&) = delete;

  bool ok() const { return fd_ >= 0; }
  // A system call only where the other thread sleeps.
  void Signal();
  // Comes before looking for work: what is signalled after it ends the next Sleep.
  void Clear() { signalled_.exchange(false); }
  // Whether there was a Signal since the last Clear.
  bool signalled() const { return signalled_; }
  // Returns when one of `others` is ready (their revents say which), at `until`, or after a Signal since the last Clear,
  // whichever comes first. It may return for nothing.
  void Sleep(std::vector<pollfd>* others, SteadyTime until);

 private:
  const Clock* const clock_;
  const int fd_;
  std::atomic<bool> signalled_{false};
  // Who signals looks at it after setting signalled_, who sleeps at signalled_ after setting it: one of the two sees.
  std::atomic<bool> asleep_{false};
};

}  // namespace slimps

#endif  // SLIMPS_PROTO_NET_WAKEUP_H_
