// Collects answers to items and groups those of one request into messages of bounded size: small tensors pay for the
// start of a message once, large ones do not wait for others.
#ifndef SLIMPS_SERVER_REPLY_OUTBOX_H_
#define SLIMPS_SERVER_REPLY_OUTBOX_H_

#include <cstddef>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "proto/base/trace.h"
#include "proto/net/transport.h"
#include "proto/slimps.pb.h"
#include "server/pull_queue.h"
#include "server/versioned_weights.h"

namespace slimps {

// The header lacks what every header of this node has in common; the sender fills it in.
struct Reply {
  PeerId to{};
  Message message;
  int64_t priority = 0;
  // Of each pull that it answers, as it would be recorded were it handed over now; empty unless traced.
  std::vector<TraceEvent> traced;
};

// Thread-compatible. Pure.
class ReplyOutbox final {
 public:
  // A group is closed at this size, so that no message comes near the limits of proto/limits.h.
  static constexpr size_t kGroupBytes = size_t{256} << 10;
  static constexpr size_t kGroupItems = 1024;

  void AddInit(const Origin& origin, const wire::ItemId& id, const absl::Status& status);
  void AddPush(const Origin& origin, const wire::ItemId& id, const absl::Status& status,
               uint64_t decode_ns);
  // What `item` asked for, or an error. `state`: of the optimizer, where that was it.
  void AddPull(const Origin& origin, const wire::PullItem& item, size_t elements, WireValue value,
               const wire::OptimizerState* state = nullptr);
  void AddPullError(const Origin& origin, const wire::PullItem& item, const absl::Status& status);
  // What the next AddPull of this request is about, for the trace.
  void TraceNextPull(const Origin& origin, const TraceSubject& subject);

  // Closes all groups, in the order in which they were begun. Acknowledgements go with the pulls of their request, if
  // those are small and answered as well.
  void Flush();
  // The messages of closed groups.
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

#endif  // SLIMPS_SERVER_REPLY_OUTBOX_H_
