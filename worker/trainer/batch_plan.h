// SPDX-License-Identifier: Apache-2.0
// BatchPlan: decides which samples a worker sees in which step. Every epoch shuffles the whole
// training split by (seed, epoch). Worker j of N takes every N-th sample of that order, starting
// with the j-th (from 0), and cuts its part into batches. So all workers' batches of step s
// together are the s-th stretch of N * batch samples: N workers with batch B see in each step what
// one process with batch N * B sees.
//
//   const BatchPlan plan({.samples = 1437, .workers = 2, .rank = 0, .batch = 32}, /*epoch=*/0);
//   for (size_t step = 0; step < plan.steps(); ++step) Use(plan.Batch(step));
#ifndef SLIMPS_WORKER_TRAINER_BATCH_PLAN_H_
#define SLIMPS_WORKER_TRAINER_BATCH_PLAN_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace slimps {

// Returns a permutation of 0..count-1. It is the same on every machine and with every standard
// library (Fisher-Yates over std::mt19937_64, whose output the standard fixes). Pure; thread-safe.
// REQUIRES: count < 2^32.
std::vector<uint32_t> ShuffledOrder(size_t count, uint64_t seed, uint64_t epoch);

// Thread-compatible.
class BatchPlan final {
 public:
  struct Options {
    size_t samples = 0;
    uint32_t workers = 1;
    uint32_t rank = 0;
    size_t batch = 1;  // per worker
    uint64_t seed = 0;
  };

  // REQUIRES: rank < workers, batch > 0.
  BatchPlan(const Options& options, uint64_t epoch);

  // Returns the number of steps, the same on every worker: as many as the largest part needs.
  size_t steps() const { return steps_; }

  // Returns this worker's samples of a step. There are fewer than `batch` in its last step, and
  // none if its part has ended before the others'.
  // REQUIRES: step < steps().
  std::span<const uint32_t> Batch(size_t step) const;

 private:
  size_t batch_ = 1;
  size_t steps_ = 0;
  std::vector<uint32_t> mine_;
};

}  // namespace slimps

#endif  // SLIMPS_WORKER_TRAINER_BATCH_PLAN_H_
