// absl::Status to and from its wire form. Thread-safe.
#ifndef SLIMPS_PROTO_STATUS_PROTO_H_
#define SLIMPS_PROTO_STATUS_PROTO_H_

#include "absl/status/status.h"
#include "proto/slimps.pb.h"

namespace slimps {

// Messages longer than 4 KiB are cut, and bytes that are not ASCII become '?', so that an error can
// always be sent.
wire::StatusProto ToStatusProto(const absl::Status& status);
// A code that Abseil does not know becomes Unknown.
absl::Status FromStatusProto(const wire::StatusProto& proto);

}  // namespace slimps

#endif  // SLIMPS_PROTO_STATUS_PROTO_H_
