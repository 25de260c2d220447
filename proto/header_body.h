// SPDX-License-Identifier: Apache-2.0
// Gives a header its body so that running out of memory does no harm. protobuf's mutable_push() and
// its like record which body a header has before they allocate that body. If the allocation throws,
// the header is left with an invalid pointer, which even its destructor follows. So code that
// survives std::bad_alloc gives the body first, and mutable_push() then only finds it.
//
//   GiveBody(wire::Header::kPush, &header);
//   header.mutable_push()->add_items();
//
// Pure. All functions are thread-safe.
#ifndef SLIMPS_PROTO_HEADER_BODY_H_
#define SLIMPS_PROTO_HEADER_BODY_H_

#include "proto/slimps.pb.h"

namespace slimps {

// True if `field` of a header is one of its bodies.
[[nodiscard]] constexpr bool IsBody(int field) {
  return field >= wire::Header::kRegister && field <= wire::Header::kRelay;
}

// Replaces the body that *header has by an empty one. Throws std::bad_alloc; *header then still has
// its old body.
void GiveBody(wire::Header::BodyCase body, wire::Header* header);

}  // namespace slimps

#endif  // SLIMPS_PROTO_HEADER_BODY_H_
