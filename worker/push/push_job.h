// SPDX-License-Identifier: Apache-2.0
// PushJob: one tensor's contribution to one round.
#ifndef SLIMPS_WORKER_PUSH_PUSH_JOB_H_
#define SLIMPS_WORKER_PUSH_PUSH_JOB_H_

#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <vector>

#include "compress/codec/codec.h"
#include "proto/base/buffer.h"
#include "proto/base/clock.h"
#include "proto/slimps.pb.h"
#include "worker/push/lent_gradient.h"
#include "worker/push/staging.h"
#include "worker/tensor/key_table.h"

namespace slimps {

// A payload that is made before its push is submitted. It is sent unchanged.
struct ReadyPayload {
  wire::Format format = wire::ABSENT;
  Payload payload;
  uint64_t elements = 0;  // of the gradient that it was made of
  EncodeStats stats;
  bool compressed = false;  // as PushCounts::Add has it
};

struct PushJob {
  const TensorPlan* tensor = nullptr;  // lives as long as the store
  uint64_t round = 0;
  int priority = 0;
  GradientBuffers grad_bufs;  // empty: this worker contributes `ready` or nothing
  // Set if grad_bufs are lent; nobody has checked them for NaN yet then.
  std::shared_ptr<GradientLoan> loan = nullptr;
  float gradient_bound = std::numeric_limits<float>::infinity();     // no |grad_buf[i]| is above it
  std::shared_ptr<const std::vector<ReadyPayload>> ready = nullptr;  // one for each partition
  // The hyperparameters of the round's step; nullopt: the optimizer's own.
  std::optional<wire::Hyper> hyper = std::nullopt;
  bool clipped = false;  // the round's step waits for its scale (KVStore::ClipRound)

  SteadyTime submitted = {};  // the first pipeline sets it

  bool carries() const { return !grad_bufs.empty(); }

  // Returns the bytes of one partition's ready payload.
  size_t ReadyBytes(size_t partition) const {
    return ready == nullptr ? 0 : (*ready)[partition].payload.size();
  }

  // Returns the bytes that the job holds until it is answered.
  size_t bytes() const {
    size_t held = carries() ? tensor->bytes() : 0;
    for (size_t i = 0; i < tensor->partitions.size(); ++i) held += ReadyBytes(i);
    return held;
  }
};

}  // namespace slimps

#endif  // SLIMPS_WORKER_PUSH_PUSH_JOB_H_
