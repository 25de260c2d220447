// A thread that owns some partitions: takes items from a bounded mailbox, drives ShardState, sends the answers.
//
//   Shard shard(options, std::move(state), &clock, [&](Reply reply) { transport.Send(...); });
//   SLIMPS_RETURN_IF_ERROR(shard.Post(&items));    // any thread
//
// Items go before arithmetic: an acknowledgement waits for the one round being applied at most. Everything that has come
// meanwhile is handled together, and its answers travel together. Small items that find the shard idle are handled by the
// thread that posts them: waking another one costs more than they do. Stop means: refuse new items, finish what was
// accepted, answer pulls that still wait with Unavailable, join.
#ifndef SLIMPS_SERVER_SHARD_H_
#define SLIMPS_SERVER_SHARD_H_

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
#include "server/shard_state.h"

namespace slimps {

struct ShardOptions {
  size_t max_mailbox_entries = 65536;
  size_t max_mailbox_bytes = size_t{4} << 30;  // payloads
  size_t max_controls = 1024;  // of peers, in the mailbox: a storm of them shuts no items out
};

// Thread-safe, but for Stop, which its owner calls.
class Shard final {
 public:
  using SendFunction = std::function<void(Reply)>;
  using Control = std::function<void(ShardState&)>;

  // Of tensors, all together: what Post handles itself, and what is answered with the rounds after it.
  static constexpr size_t kSmallBytes = size_t{64} << 10;

  // `send` is called on the shard thread or in Post, one call at a time. `clock` must outlive the shard.
  Shard(const ShardOptions& options, std::unique_ptr<ShardState> state, const Clock* clock,
        SendFunction send);
  ~Shard();
  Shard(const Shard&) = delete;
  Shard& operator=(const Shard&) = delete;

  // Takes *items, unless it fails. ResourceExhausted: the mailbox is full. Unavailable: stopped.
  [[nodiscard]] absl::Status Post(ShardItems* items);
  // Runs a peer's `control` on the shard thread, after everything posted before. ResourceExhausted: too many wait.
  // Unavailable: stopped.
  [[nodiscard]] absl::Status PostControl(Control control);
  // The same of our own, which no peer can repeat: not bounded; after Stop dropped unrun.
  void PostOwnControl(Control control);
  // Idempotent. What comes later, and what still waits then, is answered with the first `why`.
  void Stop(const absl::Status& why = absl::UnavailableError("the server is stopping"));

 private:
  using Entry = std::variant<ShardItems, Control>;

  void Run();
  // Waits for work, and takes the state and everything posted. Both empty: there is arithmetic, or a deadline has come.
  // False: stopped, and nothing is left.
  bool Take(std::deque<Entry>* entries);
  void Handle(Entry entry);
  // On the caller's thread, whose the state is.
  void HandleHere(ShardItems items);
  void HandleAll(std::deque<Entry>* entries);
  void GiveBack();
  void SendReplies();

  const ShardOptions options_;
  const Clock* const clock_;
  const SendFunction send_;
  // Of the thread that has set in_use_; who clears it, under the lock, publishes what was done.
  const std::unique_ptr<ShardState> state_;

  Mutex mutex_;
  CondVar arrived_;  // an entry, stopping_, an earlier deadline, or the state
  bool in_use_ ABSL_GUARDED_BY(mutex_) = false;
  bool awaits_state_ ABSL_GUARDED_BY(mutex_) =
      false;  // the thread sleeps without a deadline: who gives back wakes it
  SteadyTime wake_at_ ABSL_GUARDED_BY(mutex_) =
      SteadyTime::InfiniteFuture();  // when in_use_ is false: the next deadline
  std::deque<Entry> mailbox_ ABSL_GUARDED_BY(mutex_);
  size_t mailbox_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  size_t peer_controls_ ABSL_GUARDED_BY(mutex_) = 0;  // in the mailbox
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  absl::Status stopped_ ABSL_GUARDED_BY(mutex_);  // why
  Thread thread_;                                 // last: it uses the rest
};

}  // namespace slimps

#endif  // SLIMPS_SERVER_SHARD_H_
