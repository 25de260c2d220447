// A thread that owns some partitions: takes items from a bounded mailbox, drives ShardState, sends the answers.
//
//   Shard shard(options, std::move(state), &clock, [&](Reply reply) { transport.Send(...); });
//   SLIMPS_RETURN_IF_ERROR(shard.Post(&items));    // any thread
//
// Items go before arithmetic: an acknowledgement waits for the one round being applied at most. Stop means: refuse new
// items, finish what was accepted, answer pulls that still wait with Unavailable, join.
#ifndef SLIMPS_SERVER_SHARD_H_
#define SLIMPS_SERVER_SHARD_H_

#include <atomic>
#include <cstddef>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <thread>
#include <variant>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "proto/base/clock.h"
#include "proto/base/mutex.h"
#include "server/shard_state.h"

namespace slimps {

struct ShardOptions {
  size_t max_mailbox_entries = 65536;
  size_t max_mailbox_bytes = size_t{4} << 30;  // payloads
};

// Thread-safe, but for Stop, which its owner calls.
class Shard final {
 public:
  using SendFunction = std::function<void(Reply)>;
  using Control = std::function<void(ShardState&)>;

  // `send` is called on the shard thread only. `clock` must outlive the shard.
  Shard(const ShardOptions& options, std::unique_ptr<ShardState> state, const Clock* clock,
        SendFunction send);
  ~Shard();
  Shard(const Shard&) = delete;
  Shard& operator=(const Shard&) = delete;

  // Takes *items, unless it fails. ResourceExhausted: the mailbox is full. Unavailable: stopped.
  [[nodiscard]] absl::Status Post(ShardItems* items);
  // Runs `control` on the shard thread, after everything posted before. Not bounded: ours, not a peer's. After Stop it
  // is dropped unrun.
  void PostControl(Control control);
  // Whether a push was ever counted here. True is final.
  bool begun() const { return begun_.load(std::memory_order_relaxed); }
  // Idempotent.
  void Stop();

 private:
  using Entry = std::variant<ShardItems, Control>;

  void Run();
  // The next entry; nullopt: none, go on with arithmetic. Sets *stop once stopped and empty.
  std::optional<Entry> Next(bool busy, bool* stop);
  void SendReplies();

  const ShardOptions options_;
  const Clock* const clock_;
  const SendFunction send_;
  const std::unique_ptr<ShardState> state_;  // owned by thread_
  std::atomic<bool> begun_{false};           // publishes nothing but itself

  Mutex mutex_;
  CondVar arrived_;  // an entry, or stopping_
  std::deque<Entry> mailbox_ ABSL_GUARDED_BY(mutex_);
  size_t mailbox_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;  // last: it uses the rest
};

}  // namespace slimps

#endif  // SLIMPS_SERVER_SHARD_H_
