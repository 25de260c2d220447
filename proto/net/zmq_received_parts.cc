#include "proto/net/zmq_received_parts.h"

#include <algorithm>
#include <cstddef>
#include <span>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/base/hash.h"
#include "proto/base/status_macros.h"
#include "proto/header_check.h"

namespace slimps {
namespace {

bool IsRaw(wire::Format format) {
  return format == wire::RAW_F32 || format == wire::RAW_F16 || format == wire::RAW_BF16;
}

// REQUIRES: the message has passed ParseFrame, `borrowed` are numbers of its payloads.
absl::Status CopyAllButRaw(std::span<const size_t> borrowed, Message* message) {
  if (borrowed.empty()) return absl::OkStatus();
  const std::vector<PayloadClaim> claims = PayloadClaims(message->header);
  for (const size_t i : borrowed) {
    if (IsRaw(claims[i].format)) continue;
    Payload& payload = message->payloads[i];
    AlignedBuffer copy(payload.size());
    std::ranges::copy(payload.bytes(), copy.bytes().begin());
    payload = Payload::Adopt(std::move(copy), payload.size());
    if (claims[i].hash == 0 || HashBytes(payload.bytes()) == claims[i].hash) continue;
    return absl::DataLossError(
        absl::StrCat("payload of key ", absl::Hex(claims[i].key, absl::kZeroPad16), " partition ",
                     claims[i].partition, ": its lender changed it while it was received"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<Message> ParseReceived(ReceivedParts parts,
                                      std::vector<PayloadSharing::Borrowed> borrowed,
                                      const Limits& limits) {
  if (parts.empty()) return absl::InvalidArgumentError("a frame without a header part");
  const size_t payloads = parts.size() - 1 + borrowed.size();
  if (!borrowed.empty() && borrowed.back().payload >= payloads) {
    return absl::InvalidArgumentError(absl::StrCat(
        "a reference stands for payload ", borrowed.back().payload, ", the frame has ", payloads));
  }
  std::vector<std::span<const std::byte>> spans = {parts[0]->bytes()};
  spans.reserve(1 + payloads);
  auto next_part = parts.begin() + 1;
  auto next_borrowed = borrowed.begin();
  for (size_t i = 0; i < payloads; ++i) {
    const bool is_borrowed = next_borrowed != borrowed.end() && next_borrowed->payload == i;
    spans.push_back(is_borrowed ? (next_borrowed++)->bytes.bytes() : (*next_part++)->bytes());
  }
  Message message;
  SLIMPS_ASSIGN_OR_RETURN(message.header, ParseFrame(spans, limits));
  message.payloads.reserve(payloads);
  std::vector<size_t> places;
  for (const PayloadSharing::Borrowed& payload : borrowed) places.push_back(payload.payload);
  next_part = parts.begin() + 1;
  next_borrowed = borrowed.begin();
  for (size_t i = 0; i < payloads; ++i) {
    const bool is_borrowed = next_borrowed != borrowed.end() && next_borrowed->payload == i;
    message.payloads.push_back(is_borrowed ? std::move((next_borrowed++)->bytes)
                                           : ToPayload(std::move(*next_part++)));
  }
  SLIMPS_RETURN_IF_ERROR(CopyAllButRaw(places, &message));
  return message;
}

}  // namespace slimps
