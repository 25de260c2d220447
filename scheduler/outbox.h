// SPDX-License-Identifier: Apache-2.0
// What the scheduler's state machine wants to be sent, and the answers that its parts share.
#ifndef SLIMPS_SCHEDULER_OUTBOX_H_
#define SLIMPS_SCHEDULER_OUTBOX_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "proto/net/transport.h"
#include "proto/slimps.pb.h"

namespace slimps {

struct OutgoingHeader {
  PeerId to;
  wire::Header header;  // body and, in a reply, request_id
  // The receiver is no member, so it is told nothing of the job or of this scheduler.
  bool to_stranger = false;
};
using Outbox = std::vector<OutgoingHeader>;

// Asks a member to show at once that it lives.
wire::Header Probe();

// Returns an Error of the scheduler.
wire::Header ErrorReply(const absl::Status& status, uint64_t request_id);

// Returns an Ack without an error.
wire::Header AckReply(uint64_t request_id);

// Returns an Error for a peer that is no member.
OutgoingHeader RefuseStranger(PeerId to, const absl::Status& why, uint64_t request_id);

}  // namespace slimps

#endif  // SLIMPS_SCHEDULER_OUTBOX_H_
