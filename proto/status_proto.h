// SPDX-License-Identifier: Apache-2.0
// Converts absl::Status to and from its wire form. All functions are thread-safe.
#ifndef SLIMPS_PROTO_STATUS_PROTO_H_
#define SLIMPS_PROTO_STATUS_PROTO_H_

#include "absl/status/status.h"
#include "proto/slimps.pb.h"

namespace slimps {

// Returns the wire form of `status`. Cuts a message longer than 4 KiB and replaces bytes that are
// not ASCII by '?', so that an error can always be sent.
wire::StatusProto ToStatusProto(const absl::Status& status);

// Returns the status that `proto` stands for. A code that Abseil does not know becomes Unknown.
absl::Status FromStatusProto(const wire::StatusProto& proto);

}  // namespace slimps

#endif  // SLIMPS_PROTO_STATUS_PROTO_H_
