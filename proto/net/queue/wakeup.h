// SPDX-License-Identifier: Apache-2.0
// Lets the one thread of a transport sleep until sockets have work for it, until a time, or until
// another thread has work for it. It sleeps with nanosecond resolution (ppoll), because
// milliseconds are too coarse for an emulated link.
//
//   any thread:   queue.Push(message);  wakeup.Signal();
//   the sleeper:  for (;;) { wakeup.Clear(); DoWhatThereIs(); wakeup.Sleep(fds, NextTime()); }
#ifndef SLIMPS_PROTO_NET_QUEUE_WAKEUP_H_
#define SLIMPS_PROTO_NET_QUEUE_WAKEUP_H_

#include <poll.h>

#include <atomic>
#include <vector>

#include "absl/time/time.h"
#include "proto/base/clock.h"

namespace slimps {

// Thread-safe, except for Clear and Sleep, which only the sleeping thread calls.
class Wakeup final {
 public:
  explicit Wakeup(const Clock* clock = MachineClock());
  ~Wakeup();
  Wakeup(const Wakeup&) = delete;
  Wakeup& operator=(const Wakeup&) = delete;

  bool ok() const { return fd_ >= 0; }

  // Ends the current or the next Sleep. Makes a system call only if the other thread sleeps.
  void Signal();

  // Call this before looking for work: a Signal after it ends the next Sleep.
  void Clear() { signalled_.exchange(false); }

  // True if there was a Signal since the last Clear.
  bool signalled() const { return signalled_; }

  // Returns when one of `others` is ready (their revents say which), at `until`, or after a Signal
  // since the last Clear, whichever comes first. May return for no reason.
  void Sleep(std::vector<pollfd>* others, SteadyTime until);

 private:
  const Clock* const clock_;
  const int fd_;
  std::atomic<bool> signalled_{false};
  // A signaller sets signalled_, then reads asleep_. The sleeper sets asleep_, then reads
  // signalled_. So at least one of the two sees what the other has set, and no signal is missed.
  std::atomic<bool> asleep_{false};
};

}  // namespace slimps

#endif  // SLIMPS_PROTO_NET_QUEUE_WAKEUP_H_
