// SPDX-License-Identifier: Apache-2.0
// Holds messages that have arrived in this process but are still on their way over the emulated
// link, in order of arrival. Each is due when the link would have carried it. Without an emulated
// link a message is due at once. Pure.
//
//   arrivals.Push(from, std::move(message), bytes, now);
//   while (std::optional<Arrival> arrival = arrivals.Pop(now)) ...   // deliver it
//   sleep until arrivals.NextWake()
#ifndef SLIMPS_PROTO_NET_QUEUE_ARRIVAL_QUEUE_H_
#define SLIMPS_PROTO_NET_QUEUE_ARRIVAL_QUEUE_H_

#include <cstddef>
#include <deque>
#include <optional>
#include <utility>

#include "absl/time/time.h"
#include "proto/base/clock.h"
#include "proto/frame.h"
#include "proto/net/queue/link_emulator.h"
#include "proto/net/transport.h"
#include "proto/net/transport_options.h"

namespace slimps {

struct Arrival {
  PeerId from{};
  Message message;
  size_t bytes = 0;
  SteadyTime due;
};

// Thread-compatible.
class ArrivalQueue final {
 public:
  explicit ArrivalQueue(const TransportOptions& options)
      : link_(options.emulate_link_bytes_per_second), latency_(options.emulate_link_latency) {}

  // True if the options ask for an emulated link or latency. If not, the caller need not use the
  // queue.
  bool emulated() const { return link_.on() || latency_ > absl::ZeroDuration(); }

  void Push(PeerId from, Message message, size_t bytes, SteadyTime now) {
    const SteadyTime due = (link_.on() ? link_.Carry(now, bytes).end : now) + latency_;
    waiting_.push_back({from, std::move(message), bytes, due});
    bytes_ += bytes;
  }

  // Returns the first message if it is due, else nullopt.
  std::optional<Arrival> Pop(SteadyTime now) {
    if (waiting_.empty() || waiting_.front().due > now) return std::nullopt;
    Arrival arrival = std::move(waiting_.front());
    waiting_.pop_front();
    bytes_ -= arrival.bytes;
    return arrival;
  }

  // Returns when the first message is due; InfiniteFuture if the queue is empty.
  SteadyTime NextWake() const {
    return waiting_.empty() ? SteadyTime::InfiniteFuture() : waiting_.front().due;
  }

  // True if the reader should stop reading. That bounds memory and pushes back on the sender. One
  // megabyte in the queue keeps the link busy meanwhile. With latency far more may be on its way: a
  // lower bound would turn the latency into a limit on the rate.
  bool IsFull() const {
    const size_t more = latency_ > absl::ZeroDuration() ? 128 : 1;
    return bytes_ >= (size_t{1} << 20) * more || waiting_.size() >= 1024 * more;
  }

 private:
  LinkEmulator link_;
  const absl::Duration latency_;
  std::deque<Arrival> waiting_;
  size_t bytes_ = 0;
};

}  // namespace slimps

#endif  // SLIMPS_PROTO_NET_QUEUE_ARRIVAL_QUEUE_H_
