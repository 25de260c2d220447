// What has arrived but, on an emulated link, is still on its way: messages in order, each until the
// link would have carried it. Without an emulated link a message is due at once. Pure.
#ifndef SLIMPS_PROTO_NET_ARRIVAL_QUEUE_H_
#define SLIMPS_PROTO_NET_ARRIVAL_QUEUE_H_

#include <cstddef>
#include <deque>
#include <optional>
#include <utility>

#include "absl/time/time.h"
#include "proto/base/clock.h"
#include "proto/frame.h"
#include "proto/net/link_emulator.h"
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
      : link_(options.emulate_link_bytes_per_second, options.emulate_link_startup),
        latency_(options.emulate_link_latency) {}

  bool emulated() const { return link_.on() || latency_ > absl::ZeroDuration(); }

  void Push(PeerId from, Message message, size_t bytes, SteadyTime now) {
    const SteadyTime due = (link_.on() ? link_.Carry(now, bytes).end : now) + latency_;
    waiting_.push_back({from, std::move(message), bytes, due});
    bytes_ += bytes;
  }

  std::optional<Arrival> Pop(SteadyTime now) {
    if (waiting_.empty() || waiting_.front().due > now) return std::nullopt;
    Arrival arrival = std::move(waiting_.front());
    waiting_.pop_front();
    bytes_ -= arrival.bytes;
    return arrival;
  }

  SteadyTime NextWake() const {
    return waiting_.empty() ? SteadyTime::InfiniteFuture() : waiting_.front().due;
  }
  // A reader that stops reading while this holds keeps memory bounded and pushes back on the
  // sender; a megabyte waiting keeps the link busy meanwhile. Latency must not turn into a rate, so
  // that with it far more may be on its way.
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

#endif  // SLIMPS_PROTO_NET_ARRIVAL_QUEUE_H_
