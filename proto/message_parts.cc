// SPDX-License-Identifier: Apache-2.0
#include "proto/message_parts.h"

#include <algorithm>
#include <span>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "proto/base/hash.h"
#include "proto/base/status_macros.h"
#include "proto/frame.h"
#include "proto/header_body.h"

namespace slimps {
namespace {

bool FitsOneMessage(const wire::Header& header) {
  const size_t bytes = header.ByteSizeLong();
  // So few bytes have no list of too many entries. Most messages need no look at their fields.
  if (bytes <= kDefaultLimits.max_part_bytes) return true;
  return bytes <= kDefaultLimits.max_header_bytes - kPreludeBytes &&
         CheckHeader(header, kDefaultLimits).ok();
}

}  // namespace

absl::StatusOr<std::vector<wire::Header>> CutIntoParts(wire::Header header) {
  header.set_protocol_version(kProtocolVersion);
  if (FitsOneMessage(header)) return std::vector<wire::Header>{std::move(header)};
  wire::Header envelope;
  envelope.set_job_id(header.job_id());
  *envelope.mutable_sender() = header.sender();
  envelope.set_incarnation(header.incarnation());
  envelope.set_incarnation_high(header.incarnation_high());
  envelope.set_membership_epoch(header.membership_epoch());
  envelope.set_request_id(header.request_id());
  SLIMPS_ASSIGN_OR_RETURN(const Frame whole,
                          BuildFrame({.header = std::move(header), .payloads = {}}, kWholeLimits));
  const std::span<const std::byte> bytes = whole[0].bytes();
  const size_t most = kDefaultLimits.max_part_bytes;
  const size_t count = (bytes.size() + most - 1) / most;
  envelope.mutable_part()->set_hash(HashBytes(bytes));
  envelope.mutable_part()->set_parts(static_cast<uint32_t>(count));
  std::vector<wire::Header> parts;
  for (size_t i = 0; i < count; ++i) {
    const std::span<const std::byte> piece =
        bytes.subspan(i * most, std::min(most, bytes.size() - i * most));
    wire::Part& part = *parts.emplace_back(envelope).mutable_part();
    part.set_number(static_cast<uint32_t>(i));
    part.set_piece(piece.data(), piece.size());
  }
  return parts;
}

absl::StatusOr<std::optional<wire::Header>> PartJoiner::Add(const wire::Header& header) {
  const wire::Part& part = header.part();
  auto whole = std::ranges::find(wholes_, part.hash(), &Whole::hash);
  if (whole == wholes_.end()) {
    if (wholes_.size() == kMostAtOnce) wholes_.pop_front();
    whole = wholes_.insert(whole, {.hash = part.hash(),
                                   .pieces = std::vector<std::string>(part.parts()),
                                   .missing = part.parts()});
  }
  if (part.parts() != whole->pieces.size()) {
    const size_t expected = whole->pieces.size();
    wholes_.erase(whole);
    return absl::InvalidArgumentError(absl::StrCat("a message in parts: expected ", expected,
                                                   " parts, got part ", part.number(), " of ",
                                                   part.parts()));
  }
  std::string& piece = whole->pieces[part.number()];
  if (!piece.empty()) return std::nullopt;  // it was sent again
  piece = part.piece();
  if (--whole->missing > 0) return std::nullopt;
  const std::string bytes = absl::StrJoin(whole->pieces, "");
  wholes_.erase(whole);
  if (const uint64_t hash = HashText(bytes); hash != part.hash()) {
    return absl::DataLossError(absl::StrCat("a message in ", part.parts(), " parts: expected hash ",
                                            absl::Hex(part.hash()), ", got ", absl::Hex(hash)));
  }
  const std::span<const std::byte> parts[] = {std::as_bytes(std::span(bytes))};
  SLIMPS_ASSIGN_OR_RETURN(wire::Header joined, ParseFrame(parts, kWholeLimits));
  if (joined.has_part()) return absl::InvalidArgumentError("a message in parts is a part itself");
  return joined;
}

}  // namespace slimps
