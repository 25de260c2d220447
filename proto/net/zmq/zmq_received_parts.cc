// SPDX-License-Identifier: Apache-2.0
#include "proto/net/zmq/zmq_received_parts.h"

#include <algorithm>
#include <cstddef>
#include <span>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/base/status_macros.h"
#include "proto/header_check.h"

namespace slimps {
namespace {

bool IsRaw(wire::Format format) {
  return format == wire::RAW_F32 || format == wire::RAW_F16 || format == wire::RAW_BF16;
}

// Copies a borrowed payload unless it is raw. Its lender can still write it, and a decoder believes
// what was checked.
Payload TakeBorrowed(Payload payload, wire::Format format) {
  if (IsRaw(format)) return payload;
  AlignedBuffer copy(payload.size());
  std::ranges::copy(payload.bytes(), copy.bytes().begin());
  return Payload::Adopt(std::move(copy), payload.size());
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
  SLIMPS_ASSIGN_OR_RETURN(UnhashedFrame frame, ParseUnhashed(spans, limits));
  Message message;
  message.header = std::move(frame.header);
  message.payloads.reserve(payloads);
  next_part = parts.begin() + 1;
  next_borrowed = borrowed.begin();
  for (size_t i = 0; i < payloads; ++i) {
    const bool is_borrowed = next_borrowed != borrowed.end() && next_borrowed->payload == i;
    message.payloads.push_back(
        is_borrowed ? TakeBorrowed(std::move((next_borrowed++)->bytes), frame.claims[i].format)
                    : ToPayload(std::move(*next_part++)));
  }
  // Checked after the copies were made, so the hashes cover the bytes that will be decoded.
  SLIMPS_RETURN_IF_ERROR(CheckHashes(frame.claims, message.payloads));
  return message;
}

}  // namespace slimps
