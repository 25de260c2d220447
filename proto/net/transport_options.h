// SPDX-License-Identifier: Apache-2.0
// The settings that all transports share.
#ifndef SLIMPS_PROTO_NET_TRANSPORT_OPTIONS_H_
#define SLIMPS_PROTO_NET_TRANSPORT_OPTIONS_H_

#include <cstddef>
#include <optional>

#include "absl/time/time.h"
#include "proto/base/clock.h"
#include "proto/limits.h"

namespace slimps {

// Bounds strangers: peers that connected to a bound address and were not admitted
// (Transport::Admit). The first two bounds limit the memory that one stranger takes here. Together
// with the third they limit the memory of all strangers. A stranger that exceeds the first or the
// second is disconnected. If the third is exceeded, the oldest stranger is.
struct StrangerLimits {
  size_t max_message_bytes = size_t{32} << 10;  // of one message, complete or not
  // What waits to be sent to it, with kStrangerMessageBytes added for each message.
  size_t max_queued_bytes = size_t{32} << 10;
  size_t max_connections = 256;
};
inline constexpr size_t kStrangerMessageBytes = 1024;

struct TransportOptions {
  Limits limits;
  // Set this where anyone can connect. Peers that are known must then be admitted. If absent, every
  // peer counts as admitted.
  std::optional<StrangerLimits> strangers;
  // Send returns ResourceExhausted beyond either. Payloads are shared, so most of the bytes are not
  // the queue's own.
  size_t max_queued_bytes_per_peer = size_t{1} << 30;
  size_t max_queued_messages_per_peer = 65536;
  // How long Stop keeps sending what was accepted.
  absl::Duration linger = absl::Seconds(2);
  // Emulates a full-duplex link between this process and the network, shared by all its peers. What
  // leaves waits in priority order until the link has carried it. What arrives is delivered when
  // the link would have carried it. 0: no bound on the rate. Set it at one end of a connection: if
  // both ends set it, a message crosses two links, one after the other.
  double emulate_link_bytes_per_second = 0;
  // Added to what arrives, after the link's time. It does not occupy the link.
  absl::Duration emulate_link_latency = absl::ZeroDuration();
  const Clock* clock = MachineClock();
};

}  // namespace slimps

#endif  // SLIMPS_PROTO_NET_TRANSPORT_OPTIONS_H_
