// SPDX-License-Identifier: Apache-2.0
// ClipRound: lets the servers step one round of several tensors, clipped by the norm of the
// workers' mean gradient over all of these tensors together.
//
//   every partition's server --squares of its mean--> this worker --scale--> every one of them
//
// All workers do the same, so that the round goes on if some of them are gone. They add the squares
// up in one order, so they all say the same scale, that of torch's clip_grad_norm_:
//
//   norm = sqrt(sum of squares);  scale = min(1, max_norm / (norm + 1e-6))
//
// If the norm is not finite, the scale is 0, and no server steps the round.
#ifndef SLIMPS_WORKER_PHASES_CLIP_ROUND_H_
#define SLIMPS_WORKER_PHASES_CLIP_ROUND_H_

#include <cstdint>
#include <functional>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "proto/base/out_of_memory.h"
#include "worker/courier/called_once.h"
#include "worker/courier/courier.h"
#include "worker/tensor/clipped_norm.h"
#include "worker/tensor/key_table.h"

namespace slimps {

struct ClippedTensor {
  const TensorPlan* plan = nullptr;  // lives as long as the courier
  uint64_t round = 0;
};

struct ClipRoundOptions {
  double max_norm = 1;
  absl::Duration timeout = absl::Seconds(60);
  ClippedNorm* out = nullptr;
  // Called once, when `out` is written, or with the first error. On the thread that brings the last
  // answer.
  CalledOnce<absl::Status> done;
  // Called with the error of a server that refuses the scale. On any thread.
  std::function<void(const absl::Status&)> on_refused;
  OnOutOfMemory on_out_of_memory;  // called on any thread
};

// REQUIRES: `courier` and what `out` points to are there until everything was answered.
void ClipRound(Courier* courier, const std::vector<ClippedTensor>& tensors,
               ClipRoundOptions options);

}  // namespace slimps

#endif  // SLIMPS_WORKER_PHASES_CLIP_ROUND_H_
