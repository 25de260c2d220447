// SPDX-License-Identifier: Apache-2.0
// A process that takes back the rank of a worker that died, while the job runs (dist_sync).
//
//   partition     rounds that the former process pushed
//   a             1 2 3 4 5 6 7
//   b             1 2 3 4 5   7        the push of round 6 was lost with it
//   c             1 2 3 4 5 6          it died before it pushed round 7
//
//   this process  begins all with round 8, and pushes nothing in b's round 6 and c's round 7
//
// So the others, who wait for these rounds, go on. All tensors begin with one round, as training
// steps push them; those that no worker has ever pushed are left alone. Until its first push this
// process calls what the former called at its start (Init, SetOptimizer, barriers, sums). That
// changes nothing, and is answered as it was then.
//
//   RankReturn rank_return(&node, &keys, {.patience = absl::Seconds(30)});
//   if (node.returning()) SLIMPS_RETURN_IF_ERROR(rank_return.TakeUp(plans, combine, nullptr));
//   keys.Add(plans);
//   rank_return.AddRounds();
//
// Owned by the store. Thread-safe.
#ifndef SLIMPS_WORKER_STORE_RANK_RETURN_H_
#define SLIMPS_WORKER_STORE_RANK_RETURN_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "compress/codec/codec.h"
#include "proto/base/clock.h"
#include "proto/base/mutex.h"
#include "worker/store/worker_node.h"
#include "worker/tensor/key_table.h"

namespace slimps {

class RankReturn final {
 public:
  struct Options {
    // How long a tensor that no worker has pushed yet is waited for in a job's first rounds.
    absl::Duration patience;
    const Clock* clock = MachineClock();
  };

  // REQUIRES: the arguments outlive this.
  RankReturn(WorkerNode* node, KeyTable* keys, const Options& options)
      : node_(node), keys_(keys), options_(options) {}

  // Asks the servers where the partitions stand, pushes nothing in the rounds that the former
  // process left open, and waits until the servers' snapshots have all of this. `hindrance` not
  // null: why a job that has had rounds cannot go on with this process.
  // NotFound: a partition has no first value yet, so the job is still at its start.
  // DataLoss: a partition is further behind the others than its server accepts rounds ahead. It
  // lacks rounds that it had, or not every step pushes its key.
  // FailedPrecondition: the store's mode has no rounds, or there is a hindrance. Nothing was
  // pushed.
  [[nodiscard]] absl::Status TakeUp(const std::vector<TensorPlan>& tensors, Combine combine,
                                    const char* hindrance);

  // Makes the keys begin with the round after rounds().
  void AddRounds();

  // How many rounds the former process took part in. 0: none, or there was no such process.
  uint64_t rounds() const;

 private:
  // A partition.
  struct Asked {
    uint32_t server = 0;
    Key key;
    wire::InitItem question;
    wire::PushItem nothing = {};  // for the rounds that are open
    wire::Standing standing = {};
    uint64_t rounds_ahead = 0;  // that the server accepts
  };

  absl::Status Ask(std::vector<Asked>* asked);
  // True if some partitions have been pushed by some worker and others may soon be: a first round.
  static bool RoundsMayBegin(const std::vector<Asked>& asked);
  // Makes `newest` of each partition that of its tensor.
  static void JoinTensors(std::vector<Asked>* asked);
  absl::Status Check(const std::vector<Asked>& asked, uint64_t next_round,
                     const char* hindrance) const;
  // Pushes nothing in the rounds of each partition that are open for this rank and come before
  // `next_round`. Returns how many pushes that were.
  absl::StatusOr<size_t> PushNothing(uint64_t next_round, std::vector<Asked>* all);

  WorkerNode* const node_;
  KeyTable* const keys_;
  const Options options_;
  mutable Mutex mutex_;
  std::vector<Asked> asked_ ABSL_GUARDED_BY(mutex_);
  uint64_t next_round_ ABSL_GUARDED_BY(mutex_) = 1;
};

}  // namespace slimps

#endif  // SLIMPS_WORKER_STORE_RANK_RETURN_H_
