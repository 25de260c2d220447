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

#include "proto/base/buffer.h"
#include "proto/slimps.pb.h"
#include "worker/push/staging.h"
#include "worker/tensor/key_table.h"

namespace slimps {

struct PushJob {
  const TensorPlan* tensor = nullptr;  // lives as long as the store
  uint64_t round = 0;
  int priority = 0;
  GradientBuffers grad_bufs;  // empty: this worker contributes `rows` or nothing
  float gradient_bound = std::numeric_limits<float>::infinity();  // no |grad_buf[i]| is above it
  // Payloads of format rows, one for each partition; they are sent unchanged.
  std::shared_ptr<const std::vector<Payload>> rows = nullptr;
  // The hyperparameters of the round's step; nullopt: the optimizer's own.
  std::optional<wire::Hyper> hyper = std::nullopt;

  bool carries() const { return !grad_bufs.empty(); }

  // Returns the bytes of one partition's rows.
  size_t RowBytes(size_t partition) const {
    return rows == nullptr ? 0 : (*rows)[partition].size();
  }
};

}  // namespace slimps

#endif  // SLIMPS_WORKER_PUSH_PUSH_JOB_H_
