// A message as the parts that travel: one header part, then one raw part per payload. Pure: no
// sockets, no clock.
//
//   Message message;
//   wire::PushItem* item = message.header.mutable_push()->add_items();
//   ...                                                      // id, round, elements, format
//   AttachPayload(item, std::move(bit_buf), PayloadHashing::kXxh3, &message);
//   SLIMPS_ASSIGN_OR_RETURN(Frame frame, BuildFrame(std::move(message), kDefaultLimits));
//
// Layout byte by byte: proto/README.md. All functions are thread-safe.
#ifndef SLIMPS_PROTO_FRAME_H_
#define SLIMPS_PROTO_FRAME_H_

#include <cstddef>
#include <span>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "proto/base/buffer.h"
#include "proto/base/hash.h"
#include "proto/header_check.h"
#include "proto/limits.h"
#include "proto/slimps.pb.h"

namespace slimps {

// A header and the payloads of its items, in the items' order; an item with payload_bytes 0 has
// none. Thread-compatible.
struct Message {
  wire::Header header;
  std::vector<Payload> payloads;
};

// Part 0 is the header part, part 1 + i is payload i.
using Frame = std::vector<Payload>;

inline constexpr size_t kPreludeBytes = 8;

enum class PayloadHashing { kOff, kXxh3 };

// Makes `payload` that of `item`, an InitItem, PushItem or PullReplyItem of message->header: fills
// in the item's payload_bytes and payload_hash. Call it in the order of the items. An empty payload
// adds no part.
template <typename Item>
void AttachPayload(Item* item, Payload payload, PayloadHashing hashing, Message* message) {
  item->set_payload_bytes(payload.size());
  item->set_payload_hash(
      hashing == PayloadHashing::kOff || payload.empty() ? 0 : HashBytes(payload.bytes()));
  if (!payload.empty()) message->payloads.push_back(std::move(payload));
}

// Checks `message` as the receiver will (payload hashes excepted) and serialises the header,
// setting its protocol_version. Payloads are shared, not copied. InvalidArgument: malformed or over
// a limit. DataLoss: a payload's size is not what its item declares.
[[nodiscard]] absl::StatusOr<Frame> BuildFrame(Message message, const Limits& limits);

// Untrusted bytes in; after OK, parts[1 + i] is the payload of the i-th item that has payload_bytes
// > 0, of exactly that size and matching its hash. InvalidArgument: malformed or over a limit.
// DataLoss: a payload's size or hash disagrees. Memory used is bounded by a small multiple of
// limits.max_header_bytes.
[[nodiscard]] absl::StatusOr<wire::Header> ParseFrame(
    std::span<const std::span<const std::byte>> parts, const Limits& limits);

// ParseFrame in two steps, for payloads that others can still write: those whose insides are to be believed are copied
// in between, and what is hashed is what will be decoded.
struct UnhashedFrame {
  wire::Header header;
  std::vector<PayloadClaim> claims;  // of its payloads, in order
};
// All but the hashes.
[[nodiscard]] absl::StatusOr<UnhashedFrame> ParseUnhashed(
    std::span<const std::span<const std::byte>> parts, const Limits& limits);
// DataLoss: a hash disagrees. REQUIRES: a claim for each of `payloads`.
[[nodiscard]] absl::Status CheckHashes(std::span<const PayloadClaim> claims,
                                       std::span<const Payload> payloads);

}  // namespace slimps

#endif  // SLIMPS_PROTO_FRAME_H_
