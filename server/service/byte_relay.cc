// SPDX-License-Identifier: Apache-2.0
#include "server/service/byte_relay.h"

#include <algorithm>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "proto/status_proto.h"

namespace slimps {
namespace {

Reply ReplyTo(const Origin& origin) {
  Reply reply;
  reply.to = origin.peer;
  reply.message.header.set_request_id(origin.request_id);
  return reply;
}

Reply AckOf(const Origin& origin, const absl::Status& status = absl::OkStatus()) {
  Reply reply = ReplyTo(origin);
  *reply.message.header.mutable_ack()->mutable_status() = ToStatusProto(status);
  return reply;
}

absl::Status Check(const Origin& from, const wire::Relay& request, const Payload& payload) {
  if (from.worker == 0 && (payload.empty() || request.takers() == 0)) {
    return absl::InvalidArgumentError(
        absl::StrCat("relay: expected bytes for other workers from worker 0, got ", payload.size(),
                     " bytes for ", request.takers()));
  }
  if (from.worker == 0 || payload.empty()) return absl::OkStatus();
  return absl::PermissionDeniedError(
      absl::StrCat("relay: only worker 0 gives bytes, not worker ", from.worker));
}

}  // namespace

std::vector<Reply> ByteRelay::Handle(const Origin& from, const wire::Relay& request,
                                     Payload payload) {
  std::vector<Reply> replies;
  if (const absl::Status checked = Check(from, request, payload); !checked.ok()) {
    replies.push_back(AckOf(from, checked));
    return replies;
  }
  if (from.worker == 0) {
    Hold(from, request, std::move(payload));
  } else {
    Ask(from, request);
  }
  uint32_t have_it = 0, ended = 0;
  for (const auto& [worker, wish] : wishes_) {
    if (wish.broadcast != given_.broadcast()) continue;
    if (wish.chunk > given_.chunk()) ++have_it;
    if (wish.chunk == kEnd) ++ended;
  }
  for (auto& [worker, wish] : wishes_) {
    if (!wish.waiting.has_value()) continue;
    const bool is_given = wish.broadcast == given_.broadcast();
    // Where worker 0 does not give this broadcast, it may have gone on: the Ack was lost.
    if (wish.chunk == kEnd && (!is_given || ended >= given_.takers())) {
      replies.push_back(AckOf(*std::exchange(wish.waiting, std::nullopt)));
    }
    if (!is_given || wish.chunk != given_.chunk() || payload_.empty()) continue;
    Reply reply = ReplyTo(*std::exchange(wish.waiting, std::nullopt));
    *reply.message.header.mutable_relay() = given_;
    reply.message.payloads.push_back(payload_);
    replies.push_back(std::move(reply));
  }
  if (giver_.has_value() && have_it >= given_.takers()) {
    replies.push_back(AckOf(*std::exchange(giver_, std::nullopt)));
    payload_ = Payload();
  }
  return replies;
}

void ByteRelay::Hold(const Origin& from, const wire::Relay& request, Payload payload) {
  const bool is_late =
      request.broadcast() == given_.broadcast() && request.chunk() < given_.chunk();
  if (is_late) return;
  given_ = request;
  payload_ = std::move(payload);
  giver_ = from;
}

void ByteRelay::Ask(const Origin& from, const wire::Relay& request) {
  Wish& wish = wishes_[from.worker];
  const uint64_t chunk = request.end() ? kEnd : request.chunk();
  const bool is_late = wish.broadcast == request.broadcast() && chunk < wish.chunk;
  if (is_late) return;
  wish = {.broadcast = request.broadcast(), .chunk = chunk, .waiting = from};
}

}  // namespace slimps
