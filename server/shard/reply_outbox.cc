// SPDX-License-Identifier: Apache-2.0
#include "server/shard/reply_outbox.h"

#include <algorithm>
#include <utility>

#include "proto/base/clock.h"
#include "proto/header_body.h"
#include "proto/net/send_priority.h"
#include "proto/status_proto.h"

namespace slimps {
namespace {

constexpr size_t kItemBytes = 64;        // about an item's size in a header, without its texts
constexpr size_t kContributorBytes = 2;  // at most, of jobs with less than 16384 workers
// An acknowledgement joins pulls of at most this size, so that it does not wait until a large
// message is sent.
constexpr size_t kSmallGroupBytes = size_t{64} << 10;

wire::ItemStatus MakeItemStatus(const wire::ItemId& id, const absl::Status& status,
                                std::optional<uint64_t> durable) {
  wire::ItemStatus item;
  *item.mutable_id() = id;
  if (!status.ok()) *item.mutable_status() = ToStatusProto(status);
  if (durable.has_value()) item.set_durable(*durable);
  return item;
}

}  // namespace

ReplyOutbox::Group& ReplyOutbox::Find(const Origin& origin, wire::Header::BodyCase body) {
  const auto found = std::find_if(open_.begin(), open_.end(), [&](const Group& group) {
    return group.reply.to == origin.peer && group.request_id == origin.request_id &&
           group.reply.message.header.body_case() == body;
  });
  if (found != open_.end()) return *found;
  Group& group = open_.emplace_back();
  group.request_id = origin.request_id;
  group.reply.to = origin.peer;
  group.reply.message.header.set_request_id(origin.request_id);
  GiveBody(body, &group.reply.message.header);
  return group;
}

void ReplyOutbox::Grew(Group& group, size_t bytes) {
  group.bytes += kItemBytes + bytes;
  ++group.items;
  if (group.bytes < kGroupBytes && group.items < kGroupItems) return;
  closed_.push_back(std::move(group.reply));
  open_.erase(open_.begin() + (&group - open_.data()));
}

void ReplyOutbox::AddInit(const Origin& origin, const wire::ItemId& id, const absl::Status& status,
                          std::optional<uint64_t> durable, std::optional<wire::Standing> standing) {
  wire::ItemStatus item = MakeItemStatus(id, status, durable);
  if (standing.has_value()) *item.mutable_standing() = *std::move(standing);
  Group& group = Find(origin, wire::Header::kInitReply);
  *group.reply.message.header.mutable_init_reply()->add_items() = std::move(item);
  Grew(group, status.message().size());
}

void ReplyOutbox::AddPush(const Origin& origin, const wire::ItemId& id, const absl::Status& status,
                          uint64_t decode_ns, std::optional<uint64_t> durable) {
  wire::ItemStatus item = MakeItemStatus(id, status, durable);
  item.set_decode_ns(decode_ns);
  Group& group = Find(origin, wire::Header::kPushReply);
  *group.reply.message.header.mutable_push_reply()->add_items() = std::move(item);
  Grew(group, status.message().size());
}

void ReplyOutbox::AddPull(const Origin& origin, const wire::PullItem& item, size_t elements,
                          WireValue value, OptimizerAnswer optimizer) {
  wire::PullReplyItem answer;
  *answer.mutable_id() = item.id();
  answer.set_version(value.version);
  answer.set_elements(elements);
  answer.set_format(static_cast<wire::Format>(value.format));
  answer.set_payload_bytes(value.payload.size());
  answer.set_payload_hash(value.hash);
  answer.set_is_change(value.base_version.has_value());
  answer.set_base_version(value.base_version.value_or(0));
  answer.set_encode_ns(value.encode_ns);
  for (const uint32_t worker : value.contributors) answer.add_contributors(worker);
  if (optimizer.state.has_value()) *answer.mutable_state() = *std::move(optimizer.state);
  if (optimizer.momentum.has_value()) *answer.mutable_momentum() = *std::move(optimizer.momentum);
  if (optimizer.norm2.has_value()) answer.set_norm2(*optimizer.norm2);
  Group& group = Find(origin, wire::Header::kPullReply);
  Message& message = group.reply.message;
  *message.header.mutable_pull_reply()->add_items() = std::move(answer);
  const int64_t priority = SendPriority(value.version, item.priority());
  group.reply.priority = group.items == 0 ? priority : std::max(group.reply.priority, priority);
  const size_t bytes = value.payload.size();
  if (bytes > 0) message.payloads.push_back(std::move(value.payload));
  Grew(group, bytes + value.contributors.size() * kContributorBytes);
}

void ReplyOutbox::TraceNextPull(const Origin& origin, const TraceSubject& subject) {
  if (!TraceLog::Global().on()) return;
  Reply& reply = Find(origin, wire::Header::kPullReply).reply;
  reply.traced.push_back({.stage = TraceStage::kReply,
                          .key = std::string(subject.key),
                          .partition = subject.partition,
                          .round = subject.round,
                          .began = TraceLog::Global().Now()});
}

void ReplyOutbox::AddPullError(const Origin& origin, const wire::PullItem& item,
                               const absl::Status& status) {
  wire::PullReplyItem answer;
  *answer.mutable_id() = item.id();
  *answer.mutable_status() = ToStatusProto(status);
  Group& group = Find(origin, wire::Header::kPullReply);
  *group.reply.message.header.mutable_pull_reply()->add_items() = std::move(answer);
  Grew(group, status.message().size());
}

void ReplyOutbox::JoinAcknowledgements() {
  for (Group& pulls : open_) {
    wire::Header& header = pulls.reply.message.header;
    if (!header.has_pull_reply() || pulls.bytes > kSmallGroupBytes) continue;
    const auto pushes = std::find_if(open_.begin(), open_.end(), [&](const Group& group) {
      return group.reply.to == pulls.reply.to && group.request_id == pulls.request_id &&
             group.reply.message.header.has_push_reply();
    });
    if (pushes == open_.end()) continue;
    pulls.reply.priority = std::max(pulls.reply.priority, pushes->reply.priority);
    header.mutable_pull_reply()->mutable_pushed()->Swap(
        pushes->reply.message.header.mutable_push_reply()->mutable_items());
    pushes->reply.message.header.clear_body();  // erased below
  }
  std::erase_if(open_, [](const Group& group) {
    return group.reply.message.header.body_case() == wire::Header::BODY_NOT_SET;
  });
}

void ReplyOutbox::Flush() {
  JoinAcknowledgements();
  closed_.reserve(closed_.size() + open_.size());
  for (Group& group : open_) closed_.push_back(std::move(group.reply));
  open_.clear();
}

std::vector<Reply> ReplyOutbox::Take() { return std::exchange(closed_, {}); }

}  // namespace slimps
