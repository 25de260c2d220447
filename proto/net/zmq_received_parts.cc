#include "proto/net/zmq_received_parts.h"

#include <cstddef>
#include <span>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/base/status_macros.h"

namespace slimps {

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
  next_part = parts.begin() + 1;
  next_borrowed = borrowed.begin();
  for (size_t i = 0; i < payloads; ++i) {
    const bool is_borrowed = next_borrowed != borrowed.end() && next_borrowed->payload == i;
    message.payloads.push_back(is_borrowed ? std::move((next_borrowed++)->bytes)
                                           : ToPayload(std::move(*next_part++)));
  }
  return message;
}

}  // namespace slimps
