// SPDX-License-Identifier: Apache-2.0
// ShardFigures: what one shard tells those who watch the job: how much it has done, and which
// rounds wait for which workers. The thread that has the shard's state writes it. Any thread reads
// it, and never waits for arithmetic.
//
//   ShardFigures::Wait* const wait = figures.AddPartition("s:w", workers);
//   figures.CountPush(PayloadFormat::kLevels, bytes);
//   figures.Open(wait, round, [&](uint32_t worker) { return partition.WaitsFor(worker, 0); });
//   figures.Close(wait);                                // the round is applied
//   figures.AddTo(&sums);                               // any thread
//
// Only AddPartition allocates memory, so nothing else can fail. Thread-safe.
#ifndef SLIMPS_SERVER_SHARD_SHARD_FIGURES_H_
#define SLIMPS_SERVER_SHARD_SHARD_FIGURES_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/functional/function_ref.h"
#include "absl/time/time.h"
#include "compress/format/format.h"
#include "proto/base/clock.h"
#include "proto/base/mutex.h"

namespace slimps {

// By PayloadFormat.
using BytesByFormat = std::array<uint64_t, static_cast<size_t>(PayloadFormat::kRotated) + 1>;

struct OpenRoundFigures {
  static constexpr size_t kMaxTensors = 8;

  SteadyTime since = SteadyTime::InfiniteFuture();
  std::set<std::string> tensors;  // names of some, at most kMaxTensors
  uint64_t partitions = 0;
  std::set<uint32_t> missing;  // workers
};

// Sums over shards.
struct ShardSums {
  BytesByFormat received{}, sent{};  // payloads
  uint64_t rounds = 0;               // of partitions; dist_async, dist_ssp: pushes
  uint64_t repeats = 0;              // pushes that had been counted before
  absl::Duration step;               // to decode, sum, step and encode
  // By worker: how long some open round waited for it alone.
  std::vector<absl::Duration> waited;
  std::map<uint64_t, OpenRoundFigures> open;  // by round
};

class ShardFigures final {
 public:
  class Wait;  // one partition's

  // REQUIRES: `clock` outlives the figures.
  explicit ShardFigures(const Clock* clock);
  ~ShardFigures();

  // Adds a partition, none of whose rounds is open. It lives as long as the figures.
  Wait* AddPartition(const std::string& name, uint32_t workers);

  void CountPush(PayloadFormat format, size_t bytes);
  void CountRepeat();
  void CountAnswer(PayloadFormat format, size_t bytes);
  void CountRound(absl::Duration step);

  // Notes that this round is open and waits for the workers that `lacks` is true of. Nobody is
  // lacking: it waits to be applied. Its time counts from the first call.
  void Open(Wait* wait, uint64_t round, absl::FunctionRef<bool(uint32_t worker)> lacks);

  // Notes that `worker` has pushed and whether the open round still waits for it. Costs less than
  // Open where there are many workers.
  // Returns false, and does nothing, if this round is not open.
  bool NotePush(Wait* wait, uint64_t round, uint32_t worker, bool lacks);

  // Notes that no round of the partition is open.
  void Close(Wait* wait);

  void AddTo(ShardSums* sums) const;

 private:
  // How long open rounds waited for one worker alone.
  struct Alone {
    absl::Duration sum;
    size_t partitions = 0;  // that wait for it alone now
    SteadyTime since;       // when the first of them began to
  };

  // Counts the partition among those that wait for `worker` alone, and no longer among others.
  void SetAlone(Wait* wait, uint32_t worker, SteadyTime now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  struct OpenRound;
  // Adds to `sums` all but `sums->open`.
  void Collect(ShardSums* sums, std::map<uint64_t, OpenRound>* open) const;

  const Clock* const clock_;
  mutable Mutex mutex_;
  ShardSums sums_ ABSL_GUARDED_BY(mutex_);  // without `waited` and `open`
  std::vector<Alone> alone_ ABSL_GUARDED_BY(mutex_);
  std::deque<Wait> waits_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace slimps

#endif  // SLIMPS_SERVER_SHARD_SHARD_FIGURES_H_
