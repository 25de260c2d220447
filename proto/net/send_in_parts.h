// SPDX-License-Identifier: Apache-2.0
// Sends a message without payloads to the scheduler, or from it, in parts if it is too large for
// one message (proto/message_parts.h). Thread-safe.
#ifndef SLIMPS_PROTO_NET_SEND_IN_PARTS_H_
#define SLIMPS_PROTO_NET_SEND_IN_PARTS_H_

#include <cstdint>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "proto/base/status_macros.h"
#include "proto/message_parts.h"
#include "proto/net/transport.h"

namespace slimps {

// Sends the header, or one part after the other. After an error some parts may have been sent: the
// caller repeats the whole. Errors: those of CutIntoParts and Transport::Send.
[[nodiscard]] inline absl::Status SendInParts(Transport* transport, PeerId to, wire::Header header,
                                              int64_t priority = 0) {
  SLIMPS_ASSIGN_OR_RETURN(std::vector<wire::Header> parts, CutIntoParts(std::move(header)));
  for (wire::Header& part : parts) {
    SLIMPS_RETURN_IF_ERROR(transport->Send(to, Message{.header = std::move(part), .payloads = {}},
                                           {.priority = priority}));
  }
  return absl::OkStatus();
}

}  // namespace slimps

#endif  // SLIMPS_PROTO_NET_SEND_IN_PARTS_H_
