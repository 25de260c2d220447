// SPDX-License-Identifier: Apache-2.0
// Collects answers to items and groups those of one request into messages of bounded size. So small
// tensors share the fixed cost of a message, and large ones do not wait for others. Owned by
// ShardState, or by the I/O thread for refusals.
//
//   outbox.AddPush(origin, id, status, decode_ns);
//   outbox.AddPull(origin, item, elements, value);
//   outbox.Flush();
//   for (Reply& reply : outbox.Take()) Send(std::move(reply));
#ifndef SLIMPS_SERVER_SHARD_REPLY_OUTBOX_H_
#define SLIMPS_SERVER_SHARD_REPLY_OUTBOX_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "proto/base/trace/trace.h"
#include "proto/net/transport.h"
#include "proto/slimps.pb.h"
#include "server/round/versioned_weights.h"
#include "server/shard/pull_queue.h"

namespace slimps {

// An answer whose header lacks what all headers of this node have in common. The sender fills that
// in.
struct Reply {
  PeerId to{};
  Message message;
  int64_t priority = 0;
  // One event for each pull that it answers, complete but for the time of hand-over. Empty unless
  // traced.
  std::vector<TraceEvent> traced;
};

// What an answer says of the optimizer: its state or a round's norm, if the item asked for that,
// and what workers need to push momenta.
struct OptimizerAnswer {
  std::optional<wire::OptimizerState> state = std::nullopt;
  std::optional<wire::MomentumExchange> momentum = std::nullopt;
  std::optional<double> norm2 = std::nullopt;
};

// Thread-compatible. Pure.
class ReplyOutbox final {
 public:
  // A group is closed at this size, so that no message comes near the limits of proto/limits.h.
  static constexpr size_t kGroupBytes = size_t{256} << 10;
  static constexpr size_t kGroupItems = 1024;

  // `durable` is ItemStatus.durable; nullopt: the server takes no snapshots.
  void AddInit(const Origin& origin, const wire::ItemId& id, const absl::Status& status,
               std::optional<uint64_t> durable = std::nullopt,
               std::optional<wire::Standing> standing = std::nullopt);
  void AddPush(const Origin& origin, const wire::ItemId& id, const absl::Status& status,
               uint64_t decode_ns, std::optional<uint64_t> durable = std::nullopt);

  // Adds what `item` asked for.
  void AddPull(const Origin& origin, const wire::PullItem& item, size_t elements, WireValue value,
               OptimizerAnswer optimizer = {});
  void AddPullError(const Origin& origin, const wire::PullItem& item, const absl::Status& status);

  // Says what the next AddPull of this request is about, for the trace.
  void TraceNextPull(const Origin& origin, const TraceSubject& subject);

  // Closes all groups, in the order in which they were begun. Acknowledgements go with the pulls of
  // their request if those are answered too and are small.
  void Flush();

  // Removes and returns the messages of closed groups.
  std::vector<Reply> Take();

 private:
  struct Group {
    uint64_t request_id = 0;
    size_t bytes = 0, items = 0;
    Reply reply;
  };

  Group& Find(const Origin& origin, wire::Header::BodyCase body);
  void Grew(Group& group, size_t bytes);
  void JoinAcknowledgements();

  std::vector<Group> open_;
  std::vector<Reply> closed_;
};

}  // namespace slimps

#endif  // SLIMPS_SERVER_SHARD_REPLY_OUTBOX_H_
