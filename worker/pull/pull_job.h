// SPDX-License-Identifier: Apache-2.0
// PullJob: one tensor that a caller wants, and what its memory holds already.
#ifndef SLIMPS_WORKER_PULL_PULL_JOB_H_
#define SLIMPS_WORKER_PULL_PULL_JOB_H_

#include <cstdint>
#include <span>

#include "absl/status/status.h"
#include "worker/courier/called_once.h"
#include "worker/tensor/key_table.h"

namespace slimps {

enum class PullKind {
  // `out` may hold anything, and gets the weights.
  kPlain,
  // `out` holds, bit for bit, what the key's last pull of this kind left there, if it is the same
  // memory.
  kOnto,
  // `out` may hold anything, and gets a copy of what the merger holds.
  kThroughCopy,
};

struct PullJob {
  const TensorPlan* tensor = nullptr;
  uint64_t min_version = 0;
  int priority = 0;
  std::span<float> out;  // the whole tensor
  PullKind kind = PullKind::kPlain;
  // True if no version later than min_version can exist at submission: the answer is then exactly
  // that version. If false, the answer may be a later version.
  bool is_newest = false;
  CalledOnce<absl::Status> done;
};

}  // namespace slimps

#endif  // SLIMPS_WORKER_PULL_PULL_JOB_H_
