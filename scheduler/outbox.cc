// SPDX-License-Identifier: Apache-2.0
#include "scheduler/outbox.h"

#include "proto/status_proto.h"

namespace slimps {

wire::Header Probe() {
  wire::Header probe;
  probe.mutable_heartbeat()->set_answer_at_once(true);
  return probe;
}

wire::Header ErrorReply(const absl::Status& status, uint64_t request_id) {
  wire::Header header;
  header.set_request_id(request_id);
  *header.mutable_error()->mutable_status() = ToStatusProto(status);
  header.mutable_error()->mutable_node()->set_role(wire::SCHEDULER);
  return header;
}

wire::Header AckReply(uint64_t request_id) {
  wire::Header header;
  header.set_request_id(request_id);
  header.mutable_ack()->mutable_status();
  return header;
}

OutgoingHeader RefuseStranger(PeerId to, const absl::Status& why, uint64_t request_id) {
  OutgoingHeader refusal{.to = to, .header = {}, .to_stranger = true};
  refusal.header.set_request_id(request_id);
  *refusal.header.mutable_error()->mutable_status() = ToStatusProto(why);
  return refusal;
}

}  // namespace slimps
