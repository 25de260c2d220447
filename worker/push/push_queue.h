// SPDX-License-Identifier: Apache-2.0
// PushQueue: partitions that wait to be encoded, and which of them may begin. Several are encoded
// at a time. Those of one (key, partition) take turns, so their rounds stay in order and one
// thread at a time uses what the codec keeps of the partition.
//
//   queue.Add(std::move(works));
//   if (auto work = queue.Begin()) { ... queue.End(*work); }   // empty: none may begin now
//
//   round 1   w/0   w/1   v/0          the first that may begin: by SendPriority, then by Add.
//   round 2   w/0 <- waits for w/0 of round 1;  a measured tensor waits until nothing is encoded,
//                    and nothing behind it begins before its End
//
// Pure. Thread-compatible.
#ifndef SLIMPS_WORKER_PUSH_PUSH_QUEUE_H_
#define SLIMPS_WORKER_PUSH_PUSH_QUEUE_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "worker/push/push_job.h"
#include "worker/push/staging.h"

namespace slimps {

// What one thread encodes: a whole tensor if it is measured, else one partition.
struct EncodeWork {
  // The job without its grad_bufs. It stays until the work ends.
  std::shared_ptr<const PushJob> job;
  // The buffers of this work; empty if the worker contributes no gradient.
  GradientBuffers grad_bufs;
  size_t partition = 0;
  bool whole_tensor = false;
  uint64_t turn = 0;                   // the job's turn among the key's pushes
  std::optional<float> checked_bound;  // of a gradient on loan, once it is checked for NaN

  // No absolute value in grad_bufs is above it.
  float gradient_bound() const { return checked_bound.value_or(job->gradient_bound); }
};

class PushQueue final {
 public:
  using Works = std::map<std::pair<int64_t, uint64_t>, EncodeWork>;

  // At most `threads` works are encoded at a time: Begin allocates nothing as long as that holds.
  explicit PushQueue(size_t threads) { encoded_.reserve(threads + 1); }

  // Adds all works, or none: it throws std::bad_alloc.
  void Add(std::vector<EncodeWork> works);

  // Returns the first work that may begin, which counts as being encoded until End.
  std::optional<EncodeWork> Begin();

  // True if Begin would return a work.
  bool CanBegin() const { return Next() != waiting_.end(); }

  // Ends what Begin returned, whether or not its encoding succeeded.
  void End(const EncodeWork& work);

  // Reserves the encoding for the caller. Begin returns nothing until Open.
  // REQUIRES: nothing is encoded.
  void Close() { is_closed_ = true; }
  void Open() { is_closed_ = false; }

  // True if nothing is being encoded and Close is not in force.
  bool idle() const { return encoded_.empty() && !is_closed_; }
  bool empty() const { return waiting_.empty(); }
  size_t size() const { return waiting_.size(); }

  // Returns all works that wait, and leaves none. Allocates nothing.
  Works TakeAll() { return std::exchange(waiting_, {}); }

 private:
  Works::const_iterator Next() const;

  // Work that must leave first comes first (SendPriority), then work that was added first.
  Works waiting_;
  uint64_t next_sequence_ = 0;
  std::vector<std::pair<const TensorPlan*, size_t>> encoded_;  // partitions that are being encoded
  bool is_closed_ = false;                                     // Close, or a measured tensor
};

}  // namespace slimps

#endif  // SLIMPS_WORKER_PUSH_PUSH_QUEUE_H_
