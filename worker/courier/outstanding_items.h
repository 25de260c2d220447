// SPDX-License-Identifier: Apache-2.0
// OutstandingItems: the items that wait for an answer, by ticket. It knows when to send one again,
// and when to give it up. It neither sends nor calls `done`.
//
//   const uint64_t ticket = items.Add(std::move(out), server, priority, now);
//   ... on an answer:   if (auto item = items.Take(ticket)) item->out.done(answer);
//   ... now and then:   RetryTracker::Due due = items.TakeDue(now);
//                       for (uint64_t again : items.TakeResends(due.resend, now)) ...
//
// Pure: the caller brings the time. Thread-compatible: the courier's mutex guards it.
#ifndef SLIMPS_WORKER_COURIER_OUTSTANDING_ITEMS_H_
#define SLIMPS_WORKER_COURIER_OUTSTANDING_ITEMS_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <unordered_map>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "proto/base/clock.h"
#include "proto/net/transport.h"
#include "worker/courier/outgoing_item.h"
#include "worker/courier/retry_tracker.h"

namespace slimps {

struct OutstandingItem {
  OutgoingItem out;
  uint32_t server = 0;
  int64_t priority = 0;
  SteadyTime handed_over = SteadyTime::InfinitePast();  // the first time
  SteadyTime dispatched;
  bool sent_again = false;
  bool queued = false;   // the transport holds it and has not handed it over yet
  bool owed = false;     // a push that a server's former process may have counted
  int refusals = 0;      // how often a server had no room for it
  absl::Status refusal;  // the last one
};

class OutstandingItems final {
 public:
  // servers[rank] is the connection to that server. An item that is not answered within `timeout`
  // expires.
  OutstandingItems(std::vector<PeerId> servers, absl::Duration timeout,
                   absl::Duration retry_interval);

  // Gives the item a ticket and keeps it. If memory runs out, `out` stays the caller's.
  uint64_t Add(OutgoingItem&& out, uint32_t server, int64_t priority, SteadyTime now);

  // Returns the item; null: it has been answered.
  const OutstandingItem* Find(uint64_t ticket) const;

  // Removes an item and returns it; nullopt: it has been answered.
  std::optional<OutstandingItem> Take(uint64_t ticket);

  // Returns some ticket; nullopt: nothing is outstanding.
  std::optional<uint64_t> First() const;
  size_t size() const { return items_.size(); }

  // True if the item is outstanding and was sent to that server.
  bool IsAsked(PeerId server, uint64_t ticket) const;

  // Notes that the transport has items in its queue, that it has handed them over, or that it did
  // not take them. Items that it did not take are due after the retry interval.
  void MarkQueued(const std::vector<uint64_t>& tickets);
  void MarkHandedOver(const std::vector<uint64_t>& tickets, SteadyTime when);
  void MarkUnsent(const std::vector<uint64_t>& tickets, SteadyTime now);

  // Notes that the transport dropped what it held for this server.
  void OnUndeliverable(PeerId server);

  // Notes that a message of this server came.
  void OnHeard(PeerId server, SteadyTime now);

  // Makes every item that was handed over to this server due now.
  void OnConnectionLost(PeerId server, SteadyTime now);

  // Notes that this server was started again, and is reached at `peer` from now on. Makes all its
  // items due now. Returns how many became `owed`.
  size_t OnServerRestarted(uint32_t server, PeerId peer, SteadyTime now);

  PeerId PeerOf(uint32_t server) const { return servers_[server]; }

  // True if the item is outstanding and its key was initialised for certain. Where a worker that
  // came back asks for that, it is so if the server was started again.
  bool IsOfKnownKey(uint64_t ticket) const;

  // Keeps an item, to be sent again, which its server had no room for. Returns false if it has been
  // answered.
  bool Defer(uint64_t ticket, const absl::Status& refusal, SteadyTime now);

  // Returns the items that may have to be sent again, and those whose deadline has passed.
  RetryTracker::Due TakeDue(SteadyTime now) { return retries_.TakeDue(now); }

  // Returns the items to send again: those of `due` that no answer is on the way for, and those
  // whose refusal was long enough ago.
  std::set<uint64_t> TakeResends(const std::vector<uint64_t>& due, SteadyTime now);

  // Returns the error of an item whose deadline has passed.
  absl::Status Expired(uint64_t ticket) const;

 private:
  OutstandingItem* FindMutable(uint64_t ticket);
  // True if the answer is probably queued behind others rather than lost: the item was handed over
  // and the server is talking. On a slow link, weights may take longer than the retry interval, and
  // a second request would have them sent twice. False after half of the timeout: then the item is
  // sent once more in any case.
  bool AnswersCome(const OutstandingItem& item, SteadyTime now) const;

  std::vector<PeerId> servers_;
  std::set<uint32_t> restarted_;
  const absl::Duration timeout_;
  const absl::Duration retry_interval_;
  std::unordered_map<uint64_t, OutstandingItem> items_;  // by ticket
  RetryTracker retries_;
  std::vector<SteadyTime> heard_;  // by server: when its last message came
  uint64_t next_ticket_ = 1;
  // By ticket: when to send an item again that a server refused for want of room.
  std::map<uint64_t, SteadyTime> deferred_;
};

}  // namespace slimps

#endif  // SLIMPS_WORKER_COURIER_OUTSTANDING_ITEMS_H_
