// SPDX-License-Identifier: Apache-2.0
// Converts the policy's plain structs (compress/policy) from and to the wire's messages. Pure.
#ifndef SLIMPS_WORKER_PLAN_DECISION_PROTO_H_
#define SLIMPS_WORKER_PLAN_DECISION_PROTO_H_

#include "compress/policy/codec_map.h"
#include "proto/slimps.pb.h"

namespace slimps {

// Returns the codec in which an uncompressed tensor travels.
const char* OwnPrecision(wire::DType dtype);

CodecDecision PushDecisionOf(const wire::CodecMap& map);
CodecDecision PullDecisionOf(const wire::CodecMap& map);

// Sets the fields of one direction and leaves the others.
void SetPushDecision(const CodecDecision& decision, wire::CodecMap* map);
void SetPullDecision(const CodecDecision& decision, wire::CodecMap* map);

}  // namespace slimps

#endif  // SLIMPS_WORKER_PLAN_DECISION_PROTO_H_
