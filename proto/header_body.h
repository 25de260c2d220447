// A header's body, made so that an exception may go by where memory runs out. protobuf's mutable_push() and its like say which body a header has
// before they allocate it: where that throws, the header is left with a pointer to nowhere, and even its destructor
// follows it. So whoever lives on after std::bad_alloc gives the body first, and mutable_push() then only finds it.
//
//   GiveBody(wire::Header::kPush, &header);
//   header.mutable_push()->add_items();
//
// Pure; thread-safe.
#ifndef SLIMPS_PROTO_HEADER_BODY_H_
#define SLIMPS_PROTO_HEADER_BODY_H_

#include "proto/slimps.pb.h"

namespace slimps {

// Whether `field` of a header is one of its bodies.
[[nodiscard]] constexpr bool IsBody(int field) {
  return field >= wire::Header::kRegister && field <= wire::Header::kGoodbye;
}

// An empty body in place of the one that *header has. Throws std::bad_alloc: it has that one still.
void GiveBody(wire::Header::BodyCase body, wire::Header* header);

}  // namespace slimps

#endif  // SLIMPS_PROTO_HEADER_BODY_H_
