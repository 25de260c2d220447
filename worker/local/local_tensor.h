// SPDX-License-Identifier: Apache-2.0
// LocalTensor: one tensor of a local store: its weights, the optimizer's state for it, and what a
// push does to both.
//
//   SLIMPS_RETURN_IF_ERROR(tensor.Push(in_force, gradients, grad_scale));
//   tensor.Pull(/*half=*/nullptr, out);
//
// Thread-safe: a push holds the tensor's mutex. An updater runs under it. It may ask for the
// tensor's counts, which have a mutex of their own.
#ifndef SLIMPS_WORKER_LOCAL_LOCAL_TENSOR_H_
#define SLIMPS_WORKER_LOCAL_LOCAL_TENSOR_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "backup_model/local_updater.h"
#include "compress/codec/codec.h"
#include "proto/base/buffer.h"
#include "proto/base/mutex.h"
#include "proto/slimps.pb.h"
#include "worker/kvstore.h"
#include "worker/local/local_rule.h"
#include "worker/push/device_compressor.h"
#include "worker/saved/optimizer_states.h"
#include "worker/tensor/key_table.h"
#include "worker/tensor/push_counts.h"
#include "worker/tensor/row_sparse.h"

namespace slimps {

// What applies to a push at the moment when it is made.
struct PushInForce {
  std::shared_ptr<const LocalRule> rule;
  std::shared_ptr<DeviceCompressor> compressor;  // null: none
};

class LocalTensor final {
 public:
  // The `store` is the one whose updaters push to this tensor; `keys` counts its pushes.
  // REQUIRES: both outlive this.
  LocalTensor(TensorPlan plan, AlignedBuffer weights, const KVStore* store, KeyTable* keys)
      : plan_(std::move(plan)), store_(store), keys_(keys), weights_(std::move(weights)) {}

  const TensorPlan& plan() const { return plan_; }

  // Sums the devices' gradients, each times `grad_scale`, and applies the sum.
  // InvalidArgument: a value is not finite, or the sum is not.
  [[nodiscard]] absl::Status Push(const PushInForce& in_force,
                                  std::span<const std::span<const float>> gradients,
                                  float grad_scale);

  // Applies a sum: calls the updater, or takes the optimizer's step.
  void Apply(const PushInForce& in_force, std::span<const float> sum);

  // Applies a sum that is zero but for some rows. An optimizer steps these rows only. All other
  // rows, and its state for them, stay as they are.
  void ApplyRows(const PushInForce& in_force, const SummedRows& rows);

  // Copies the weights to `out`, with the rounding of `half` unless that is null.
  void Pull(const Codec* half, std::span<float> out) const;

  // Copies what an optimizer of this kind keeps; leaves `saved` as it is if there is nothing yet.
  void SaveState(wire::OptimizerSpec::Kind kind, KeyState* saved) const;

  // Replaces what the optimizer keeps.
  void SetState(wire::OptimizerSpec::Kind kind, LocalUpdaterState state);

  PushCounts counts() const;

 private:
  absl::StatusOr<std::span<const float>> Sum(const PushInForce& in_force,
                                             std::span<const std::span<const float>> gradients,
                                             float grad_scale)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  std::span<float> SumMemory() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void ApplyLocked(const PushInForce& in_force, std::span<const float> sum)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void StepRows(const PushInForce& in_force, std::span<const float> sum,
                std::span<const int64_t> rows) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const TensorPlan plan_;
  const KVStore* const store_;
  KeyTable* const keys_;

  mutable Mutex mutex_;
  AlignedBuffer weights_ ABSL_GUARDED_BY(mutex_);
  AlignedBuffer sum_ ABSL_GUARDED_BY(mutex_);  // empty until a push needs it
  LocalUpdaterState state_ ABSL_GUARDED_BY(mutex_);
  wire::OptimizerSpec::Kind state_of_ ABSL_GUARDED_BY(mutex_) = wire::OptimizerSpec::NONE;

  mutable Mutex counts_mutex_;  // taken inside mutex_, or alone
  PushCounts counts_ ABSL_GUARDED_BY(counts_mutex_);
};

}  // namespace slimps

#endif  // SLIMPS_WORKER_LOCAL_LOCAL_TENSOR_H_
