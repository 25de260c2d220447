// SPDX-License-Identifier: Apache-2.0
// Emulates one direction of a link. A message occupies the link for its bytes over the rate. The
// next message follows behind it. Idle time earns no credit. A full-duplex link is two of these.
// Pure.
//
//   LinkEmulator link(12.5e6);                    // 100 Mbit/s
//   auto [begin, end] = link.Carry(now, bytes);   // first byte leaves, last byte arrives
#ifndef SLIMPS_PROTO_NET_QUEUE_LINK_EMULATOR_H_
#define SLIMPS_PROTO_NET_QUEUE_LINK_EMULATOR_H_

#include <algorithm>
#include <cstddef>

#include "absl/time/time.h"
#include "proto/base/clock.h"

namespace slimps {

// Thread-compatible.
class LinkEmulator final {
 public:
  struct Passage {
    SteadyTime begin;
    SteadyTime end;
  };

  // A rate of 0 means infinitely fast.
  explicit LinkEmulator(double bytes_per_second) : bytes_per_second_(bytes_per_second) {}

  bool on() const { return bytes_per_second_ > 0; }

  // Sends a message over the link. Returns when its first byte leaves and its last one arrives.
  // `ready` is when the message could begin if the link were free. It may lie in the past, so a
  // late timer costs the link nothing.
  Passage Carry(SteadyTime ready, size_t bytes) {
    Passage passage;
    passage.begin = std::max(ready, free_at_);
    passage.end = passage.begin;
    if (on()) passage.end += absl::Seconds(static_cast<double>(bytes) / bytes_per_second_);
    free_at_ = passage.end;
    return passage;
  }

 private:
  const double bytes_per_second_;
  SteadyTime free_at_ = SteadyTime::InfinitePast();
};

}  // namespace slimps

#endif  // SLIMPS_PROTO_NET_QUEUE_LINK_EMULATOR_H_
