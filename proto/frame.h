// SPDX-License-Identifier: Apache-2.0
// Turns a message into the parts that travel, and back: one header part, then one raw part for each
// payload. Pure: no sockets, no clock.
//
//   Message message;
//   wire::PushItem* item = message.header.mutable_push()->add_items();
//   ...                                                      // id, round, elements, format
//   AttachPayload(item, std::move(bit_buf), PayloadHashing::kXxh3, &message);
//   SLIMPS_ASSIGN_OR_RETURN(Frame frame, BuildFrame(std::move(message), kDefaultLimits));
//
// proto/README.md gives the layout byte by byte. All functions are thread-safe.
#ifndef SLIMPS_PROTO_FRAME_H_
#define SLIMPS_PROTO_FRAME_H_

#include <cstddef>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "proto/base/buffer.h"
#include "proto/base/hash.h"
#include "proto/header_check.h"
#include "proto/limits.h"
#include "proto/slimps.pb.h"

namespace slimps {

// A header and the payloads of its items, in the order of the items. An item with payload_bytes 0
// has no payload. Thread-compatible.
struct Message {
  wire::Header header;
  std::vector<Payload> payloads;
  // The node whose key a received message's connection was made with, as NodeName writes it
  // ("worker 1"). "": the connection asked for no key. It is not sent.
  std::string user_id = {};
};

// Part 0 is the header part, part 1 + i is payload i.
using Frame = std::vector<Payload>;

inline constexpr size_t kPreludeBytes = 8;

enum class PayloadHashing { kOff, kXxh3 };

// Attaches `payload` to `item`, an InitItem, PushItem, PullReplyItem or Relay of message->header:
// fills in the item's payload_bytes and payload_hash. An empty payload adds no part.
// REQUIRES: called in the order of the items.
template <typename Item>
void AttachPayload(Item* item, Payload payload, PayloadHashing hashing, Message* message) {
  item->set_payload_bytes(payload.size());
  item->set_payload_hash(
      hashing == PayloadHashing::kOff || payload.empty() ? 0 : HashBytes(payload.bytes()));
  if (!payload.empty()) message->payloads.push_back(std::move(payload));
}

// Checks `message` as the receiver will (except payload hashes), sets the header's protocol_version
// and serialises the header. Payloads are shared, not copied.
// InvalidArgument: the message is malformed or over a limit.
// DataLoss: the size of a payload is not what its item declares.
[[nodiscard]] absl::StatusOr<Frame> BuildFrame(Message message, const Limits& limits);

// Parses untrusted parts and checks them. After OK, parts[1 + i] is the payload of the i-th item
// that has payload_bytes > 0. It has exactly that size and matches its hash. The memory used is at
// most a small multiple of limits.max_header_bytes.
// InvalidArgument: the message is malformed or over a limit.
// DataLoss: the size or hash of a payload disagrees.
[[nodiscard]] absl::StatusOr<wire::Header> ParseFrame(
    std::span<const std::span<const std::byte>> parts, const Limits& limits);

// The result of the first of two steps that do what ParseFrame does. They are for payloads that
// others can still write: between the steps the caller copies the payloads that a decoder will
// believe. So the bytes that are hashed are those that will be decoded.
struct UnhashedFrame {
  wire::Header header;
  std::vector<PayloadClaim> claims;  // one for each payload, in order
};
// Does what ParseFrame does, except checking hashes.
[[nodiscard]] absl::StatusOr<UnhashedFrame> ParseUnhashed(
    std::span<const std::span<const std::byte>> parts, const Limits& limits);

// Checks the hashes of the payloads.
// REQUIRES: `claims` has an entry for each of `payloads`.
// DataLoss: a hash disagrees.
[[nodiscard]] absl::Status CheckHashes(std::span<const PayloadClaim> claims,
                                       std::span<const Payload> payloads);

}  // namespace slimps

#endif  // SLIMPS_PROTO_FRAME_H_
