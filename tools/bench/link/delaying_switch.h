// SPDX-License-Identifier: Apache-2.0
// A network switch that holds every frame for the same time. Pure: no socket, no clock.
//
//   DelayingSwitch between(/*ports=*/3, absl::Milliseconds(10), kMaxHeldBytes);
//   between.Receive(port, frame, now);                     // a frame came in
//   while (auto out = between.TakeDue(now)) Send(out->port, out->frame);
//   SleepUntil(between.due());
#ifndef SLIMPS_TOOLS_BENCH_LINK_DELAYING_SWITCH_H_
#define SLIMPS_TOOLS_BENCH_LINK_DELAYING_SWITCH_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <span>
#include <vector>

#include "absl/time/time.h"
#include "proto/base/clock.h"

namespace slimps {

// A frame is the kernel's virtio_net_hdr (how to cut the frame up, which checksum is missing), then
// an Ethernet frame: destination, source, and the rest. The header of that struct is not C++.
inline constexpr size_t kEthernetOffset = 10;

// Thread-compatible.
class DelayingSwitch final {
 public:
  struct Held {
    SteadyTime due;
    size_t port;
    std::vector<std::byte> frame;
  };

  // Holds at most `max_bytes` of frames.
  DelayingSwitch(size_t ports, absl::Duration hold, size_t max_bytes);

  // Holds a frame from `port` for its destination's port. That is where frames from this address
  // came in before; a frame to an unknown address or to a group goes to all other ports.
  // A frame that does not fit into `max_bytes`, or is too short for Ethernet, is lost.
  void Receive(size_t port, std::span<const std::byte> frame, SteadyTime now);

  // Returns the frame that has been held longest; nullopt if none is due yet.
  [[nodiscard]] std::optional<Held> TakeDue(SteadyTime now);

  // Returns when the next frame is due; InfiniteFuture if none is held.
  [[nodiscard]] SteadyTime due() const;

  // Returns how many frames were lost, one for each port that a frame did not reach.
  [[nodiscard]] uint64_t lost() const { return lost_; }

 private:
  using Address = std::array<std::byte, 6>;

  void Hold(size_t port, std::span<const std::byte> frame, SteadyTime due);

  const size_t ports_;
  const absl::Duration hold_;
  const size_t max_bytes_;
  std::map<Address, size_t> port_of_;
  std::deque<Held> held_;  // in the order of `due`, since all are held alike
  size_t held_bytes_ = 0;
  uint64_t lost_ = 0;
};

}  // namespace slimps

#endif  // SLIMPS_TOOLS_BENCH_LINK_DELAYING_SWITCH_H_
