// Settings that every transport shares.
#ifndef SLIMPS_PROTO_NET_TRANSPORT_OPTIONS_H_
#define SLIMPS_PROTO_NET_TRANSPORT_OPTIONS_H_

#include <cstddef>

#include "absl/time/time.h"
#include "proto/limits.h"

namespace slimps {

struct TransportOptions {
  Limits limits;
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
};

}  // namespace slimps

#endif  // SLIMPS_PROTO_NET_TRANSPORT_OPTIONS_H_
