// SPDX-License-Identifier: Apache-2.0
// A thread that owns some partitions. It takes items from a bounded mailbox, drives ShardState and
// sends the answers.
//
//   Shard shard(options, std::move(state), &clock, [&](Reply reply) { transport.Send(...); });
//   SLIMPS_RETURN_IF_ERROR(shard.Post(&items));    // any thread
//
// Items go before arithmetic: an acknowledgement waits for at most the one round being applied.
// Everything that has come meanwhile is handled together, and its answers travel together. If small
// items find the shard idle, the posting thread handles them itself: waking another thread costs
// more than they do.
//
// Stop means: refuse new items, finish what was accepted, answer pulls that still wait with the
// stop's reason, join.
#ifndef SLIMPS_SERVER_SHARD_SHARD_H_
#define SLIMPS_SERVER_SHARD_SHARD_H_

#include <cstddef>
#include <deque>
#include <functional>
#include <memory>
#include <variant>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "proto/base/clock.h"
#include "proto/base/mutex.h"
#include "proto/base/thread.h"
#include "server/shard/shard_state.h"

namespace slimps {

struct ShardOptions {
  size_t max_mailbox_entries = 65536;
  size_t max_mailbox_bytes = size_t{4} << 30;  // payloads
  size_t max_controls = 1024;                  // of peers; a flood of them leaves room for items
};

// Thread-safe, except Stop, which its owner calls.
class Shard final {
 public:
  using SendFunction = std::function<void(Reply)>;
  using Control = std::function<void(ShardState&)>;

  // Fp32 bytes of the tensors that items name, together: up to this, Post handles the items itself.
  // Rounds up to this size are applied with the items before them, and answered together.
  static constexpr size_t kSmallBytes = size_t{64} << 10;

  // Calls `send` on the shard thread or in Post, one call at a time.
  // REQUIRES: `clock` outlives the shard.
  Shard(const ShardOptions& options, std::unique_ptr<ShardState> state, const Clock* clock,
        SendFunction send);
  ~Shard();
  Shard(const Shard&) = delete;
  Shard& operator=(const Shard&) = delete;

  // Takes *items. After an error *items is unchanged.
  // ResourceExhausted: the mailbox is full.
  // Unavailable, or Stop's `why`: stopped.
  [[nodiscard]] absl::Status Post(ShardItems* items);

  // Runs a peer's `control` on the shard thread, after everything posted before.
  // ResourceExhausted: too many wait.
  // Unavailable, or Stop's `why`: stopped.
  [[nodiscard]] absl::Status PostControl(Control control);

  // Runs a control of this server's own, which no peer can repeat, so it is not bounded. After Stop
  // it is dropped without being run.
  void PostOwnControl(Control control);

  // Returns how many messages and controls wait for the shard thread.
  size_t waiting() const;

  // Returns what the shard tells those who watch.
  const ShardFigures& figures() const { return state_->figures(); }

  // Stops as described above. Idempotent. The first `why` answers items that come later and pulls
  // that still wait.
  void Stop(const absl::Status& why = absl::UnavailableError("the server is stopping"));

 private:
  using Entry = std::variant<ShardItems, Control>;

  void Run();
  // Waits for work, then takes the state and everything posted. If nothing was posted, there is
  // arithmetic to do or a deadline has come. Returns false if stopped and nothing is left.
  bool Take(std::deque<Entry>* entries);
  void Handle(Entry entry);
  // Handles items on the caller's thread, which has taken the state.
  void HandleHere(ShardItems items);
  void HandleAll(std::deque<Entry>* entries);
  void GiveBack();
  void SendReplies();

  const ShardOptions options_;
  const Clock* const clock_;
  const SendFunction send_;
  // Owned by the thread that has set in_use_. Clearing it under the lock publishes what that thread
  // did.
  const std::unique_ptr<ShardState> state_;

  mutable Mutex mutex_;
  CondVar arrived_;  // an entry, stopping_, an earlier deadline, or the state
  bool in_use_ ABSL_GUARDED_BY(mutex_) = false;
  // The shard thread sleeps without a deadline until the state is given back.
  bool awaits_state_ ABSL_GUARDED_BY(mutex_) = false;
  // The next deadline while in_use_ is false. InfinitePast: there is arithmetic to do.
  SteadyTime wake_at_ ABSL_GUARDED_BY(mutex_) = SteadyTime::InfiniteFuture();
  std::deque<Entry> mailbox_ ABSL_GUARDED_BY(mutex_);
  size_t mailbox_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  size_t peer_controls_ ABSL_GUARDED_BY(mutex_) = 0;  // in the mailbox
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  absl::Status stopped_ ABSL_GUARDED_BY(mutex_);  // the first `why`
  Thread thread_;                                 // last: it uses the other members
};

}  // namespace slimps

#endif  // SLIMPS_SERVER_SHARD_SHARD_H_
