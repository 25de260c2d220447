// SPDX-License-Identifier: Apache-2.0
// OutgoingItem: the init, push or pull of one partition, on its way to a server. Answer: what comes
// back for it.
#ifndef SLIMPS_WORKER_COURIER_OUTGOING_ITEM_H_
#define SLIMPS_WORKER_COURIER_OUTGOING_ITEM_H_

#include <cstdint>
#include <optional>
#include <string>
#include <variant>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "proto/base/buffer.h"
#include "proto/slimps.pb.h"
#include "worker/courier/called_once.h"

namespace slimps {

// Returns how long a server may hold a pull, as PullItem.timeout_ms, if the worker waits `timeout`
// for the answer. It is less, so that an answer that names whom the pull waits for comes in time.
inline uint64_t HoldMs(absl::Duration timeout) {
  return static_cast<uint64_t>(absl::ToInt64Milliseconds(timeout * 15 / 16));
}

struct Answer {
  absl::Status status;
  // From the first byte handed over to the answer. Zero if the item was sent more than once: nobody
  // knows which of them was answered.
  absl::Duration round_trip;
  absl::Duration decode;     // for a profiled push: the time that the server took to decode it
  wire::PullReplyItem pull;  // for a pull
  wire::Standing standing;   // for an init item that asked for it
  // wire::ItemStatus.durable. nullopt: the server takes no snapshots, or this answers a pull.
  std::optional<uint64_t> durable = {};
  Payload payload;  // for a pull
};

struct OutgoingItem {
  // Dispatch sets the item's ticket.
  std::variant<wire::PushItem, wire::PullItem, wire::InitItem> item;
  Payload payload;
  std::string key_name;  // for error messages
  CalledOnce<Answer> done;

  template <typename Item>
  bool is() const {
    return std::holds_alternative<Item>(item);
  }
  const wire::ItemId& id() const {
    return std::visit([](const auto& one) -> const wire::ItemId& { return one.id(); }, item);
  }
  wire::ItemId* mutable_id() {
    return std::visit([](auto& one) { return one.mutable_id(); }, item);
  }
};

}  // namespace slimps

#endif  // SLIMPS_WORKER_COURIER_OUTGOING_ITEM_H_
