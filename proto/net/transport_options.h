// Settings that every transport shares.
#ifndef SLIMPS_PROTO_NET_TRANSPORT_OPTIONS_H_
#define SLIMPS_PROTO_NET_TRANSPORT_OPTIONS_H_

#include <cstddef>
#include <optional>

#include "absl/time/time.h"
#include "proto/base/clock.h"
#include "proto/limits.h"

namespace slimps {

// Bounds on who has connected to a bound address and was not admitted (Transport::Admit). Memory of ours: for one the two
// first, for all these times the third.
struct StrangerLimits {
  size_t max_message_bytes =
      size_t{32} << 10;  // of one message, whole or not; beyond it the connection is closed
  // Of what is to be sent to it, each message with kStrangerMessageBytes on top; beyond them the connection is closed.
  size_t max_queued_bytes = size_t{32} << 10;
  size_t max_connections = 256;  // beyond them the oldest is closed
};
inline constexpr size_t kStrangerMessageBytes = 1024;

struct TransportOptions {
  Limits limits;
  // Set where whoever can connect may; who is known is then to be admitted. Absent: all are.
  std::optional<StrangerLimits> strangers;
  // Send answers ResourceExhausted beyond either. Payloads are shared, so the bytes are mostly not
  // the queue's own.
  size_t max_queued_bytes_per_peer = size_t{1} << 30;
  size_t max_queued_messages_per_peer = 65536;
  // How long Stop goes on sending what was accepted.
  absl::Duration linger = absl::Seconds(2);
  // An emulated full-duplex link between this process and the network, shared by all its peers:
  // what leaves waits in priority order until the link has carried it, what arrives is delivered
  // once the link would have. 0: off. Set it at one end of a connection: at both, a message crosses
  // two such links one after the other.
  double emulate_link_bytes_per_second = 0;
  // Of what arrives, on top of the link's time; keeps nothing else waiting.
  absl::Duration emulate_link_latency = absl::ZeroDuration();
  absl::Duration emulate_link_startup = absl::ZeroDuration();  // of each message, in each direction
  const Clock* clock = MachineClock();
};

}  // namespace slimps

#endif  // SLIMPS_PROTO_NET_TRANSPORT_OPTIONS_H_
