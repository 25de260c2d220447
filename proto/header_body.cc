// SPDX-License-Identifier: Apache-2.0
#include "proto/header_body.h"

namespace slimps {

// set_allocated_push and its like take what is allocated already. protobuf's reflection is not
// used, because it allocates too.
void GiveBody(wire::Header::BodyCase body, wire::Header* header) {
  switch (body) {
    case wire::Header::kRegister:
      return header->set_allocated_register_(new wire::Register);
    case wire::Header::kWelcome:
      return header->set_allocated_welcome(new wire::Welcome);
    case wire::Header::kRoster:
      return header->set_allocated_roster(new wire::Roster);
    case wire::Header::kBarrier:
      return header->set_allocated_barrier(new wire::Barrier);
    case wire::Header::kBarrierRelease:
      return header->set_allocated_barrier_release(new wire::BarrierRelease);
    case wire::Header::kHeartbeat:
      return header->set_allocated_heartbeat(new wire::Heartbeat);
    case wire::Header::kNodeDown:
      return header->set_allocated_node_down(new wire::NodeDown);
    case wire::Header::kDeclareKeys:
      return header->set_allocated_declare_keys(new wire::DeclareKeys);
    case wire::Header::kPlacement:
      return header->set_allocated_placement(new wire::Placement);
    case wire::Header::kThresholdReport:
      return header->set_allocated_threshold_report(new wire::ThresholdReport);
    case wire::Header::kCodecMap:
      return header->set_allocated_codec_map(new wire::CodecMap);
    case wire::Header::kInit:
      return header->set_allocated_init(new wire::Init);
    case wire::Header::kInitReply:
      return header->set_allocated_init_reply(new wire::InitReply);
    case wire::Header::kPush:
      return header->set_allocated_push(new wire::Push);
    case wire::Header::kPushReply:
      return header->set_allocated_push_reply(new wire::PushReply);
    case wire::Header::kPull:
      return header->set_allocated_pull(new wire::Pull);
    case wire::Header::kPullReply:
      return header->set_allocated_pull_reply(new wire::PullReply);
    case wire::Header::kPushPull:
      return header->set_allocated_push_pull(new wire::PushPull);
    case wire::Header::kSetOptimizer:
      return header->set_allocated_set_optimizer(new wire::SetOptimizer);
    case wire::Header::kAck:
      return header->set_allocated_ack(new wire::Ack);
    case wire::Header::kLeave:
      return header->set_allocated_leave(new wire::Leave);
    case wire::Header::kError:
      return header->set_allocated_error(new wire::Error);
    case wire::Header::kShutdown:
      return header->set_allocated_shutdown(new wire::Shutdown);
    case wire::Header::kGoodbye:
      return header->set_allocated_goodbye(new wire::Goodbye);
    case wire::Header::kPersist:
      return header->set_allocated_persist(new wire::Persist);
    case wire::Header::kCheckpoint:
      return header->set_allocated_checkpoint(new wire::Checkpoint);
    case wire::Header::kPart:
      return header->set_allocated_part(new wire::Part);
    case wire::Header::kRelay:
      return header->set_allocated_relay(new wire::Relay);
    case wire::Header::BODY_NOT_SET:
      return header->clear_body();
  }
}

}  // namespace slimps
