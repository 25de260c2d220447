// SPDX-License-Identifier: Apache-2.0
// Small messages for tests of the transports.
#ifndef SLIMPS_TESTS_PROTO_NET_NET_MESSAGES_H_
#define SLIMPS_TESTS_PROTO_NET_NET_MESSAGES_H_

#include <cstddef>
#include <cstdint>
#include <utility>

#include "proto/frame.h"

namespace slimps {

inline Message Numbered(uint64_t number) {
  Message message;
  message.header.mutable_heartbeat()->set_sequence(number);
  message.header.set_request_id(number);
  return message;
}

// Returns a push of raw floats that fills `payload_bytes`. The values depend on `number`.
// REQUIRES: payload_bytes is a multiple of 4.
inline Message NumberedPush(uint64_t number, size_t payload_bytes) {
  Message message;
  message.header.set_request_id(number);
  wire::PushItem* item = message.header.mutable_push()->add_items();
  item->mutable_id()->set_ticket(number);
  item->set_elements(payload_bytes / 4);
  item->set_format(wire::RAW_F32);
  AlignedBuffer buffer(payload_bytes);
  uint32_t state = static_cast<uint32_t>(number);
  for (float& value : buffer.floats()) {
    state = state * 1664525u + 1013904223u;
    value = static_cast<float>(state >> 8);
  }
  AttachPayload(item, Payload::Adopt(std::move(buffer), payload_bytes), PayloadHashing::kXxh3,
                &message);
  return message;
}

}  // namespace slimps

#endif  // SLIMPS_TESTS_PROTO_NET_NET_MESSAGES_H_
