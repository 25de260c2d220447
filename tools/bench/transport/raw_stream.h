// SPDX-License-Identifier: Apache-2.0
// One end of a stream of equal messages in both directions. The number of unacknowledged messages
// is bounded in each direction. This is the counting of the raw ZeroMQ peers, without sockets. A
// direction that carries nothing has a count of 0.
//
//   RawStream stream({.to_send = 100, .to_receive = 100, .window = 8});
//   while (stream.CanSend()) { ...; stream.OnSent(); }
//   stream.OnReceived();                                   // a message came
//   if (uint32_t count = stream.TakeAcknowledgements()) ...  // goes back in one small message
#ifndef SLIMPS_TOOLS_BENCH_TRANSPORT_RAW_STREAM_H_
#define SLIMPS_TOOLS_BENCH_TRANSPORT_RAW_STREAM_H_

#include <cstdint>

namespace slimps {

// Thread-compatible.
class RawStream final {
 public:
  struct Plan {
    uint64_t to_send = 0;
    uint64_t to_receive = 0;
    uint64_t window = 1;  // bound of messages sent and not acknowledged
  };

  RawStream() = default;
  explicit RawStream(const Plan& plan) : plan_(plan) {}

  bool CanSend() const { return sent_ < plan_.to_send && sent_ - acknowledged_ < plan_.window; }
  void OnSent() { ++sent_; }
  void OnReceived() {
    ++received_;
    ++owed_;
  }

  // Counts acknowledged messages. Returns false, having changed nothing, if `count` is more than
  // are outstanding, which a correct peer never acknowledges.
  [[nodiscard]] bool OnAcknowledged(uint32_t count) {
    if (count > sent_ - acknowledged_) return false;
    acknowledged_ += count;
    return true;
  }

  // Returns how many messages to acknowledge now; they then count as acknowledged.
  uint32_t TakeAcknowledgements() {
    const uint32_t owed = owed_;
    owed_ = 0;
    return owed;
  }

  // True if everything was received and acknowledged, and everything sent was acknowledged.
  bool done() const {
    return acknowledged_ == plan_.to_send && received_ == plan_.to_receive && owed_ == 0;
  }

 private:
  Plan plan_;
  uint64_t sent_ = 0;
  uint64_t acknowledged_ = 0;
  uint64_t received_ = 0;
  uint32_t owed_ = 0;
};

}  // namespace slimps

#endif  // SLIMPS_TOOLS_BENCH_TRANSPORT_RAW_STREAM_H_
