// SPDX-License-Identifier: Apache-2.0
// SharedMomentum: what a worker keeps of partitions whose optimizer, ONEBIT_ADAM, has frozen its
// variance v: the momentum m that all workers share, and v. With them the worker makes the momentum
// that it pushes from its gradient g, and repeats the servers' step to the same bits.
//
//   pushes   beta1 * m + (1 - beta1) * g
//   pulls    m = what the answer says;  w = shrink * w - step * m / (sqrt(v) + epsilon)
//
// Elements whose v is 0 are masked (compress/kernels/frozen_variance.h).
//
//   SLIMPS_RETURN_IF_ERROR(momentum.Put(*tensor, 0, answer, payload));   // m, then v, as state
//   SLIMPS_ASSIGN_OR_RETURN(bool made, momentum.Make({.tensor = tensor, .round = 9}, gradient,
//                                                    &unmasked));
//   SLIMPS_RETURN_IF_ERROR(momentum.Step(*tensor, 0, answer, payload, weights));
//
// A partition is known here from its first Put on. Until then its pushes are gradients.
// Source: Tang et al., "1-bit Adam", ICML 2021, algorithm 1, lines 6, 7 and 12.
#ifndef SLIMPS_WORKER_TENSOR_SHARED_MOMENTUM_H_
#define SLIMPS_WORKER_TENSOR_SHARED_MOMENTUM_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/base/buffer.h"
#include "proto/base/mutex.h"
#include "proto/slimps.pb.h"
#include "worker/tensor/key_table.h"

namespace slimps {

// Thread-safe. Calls for one partition run one after another.
class SharedMomentum final {
 public:
  // The numbers of the state tensors that a worker needs.
  static constexpr uint32_t kStateTensors[] = {1, 2};  // m, v

  // One gradient that is to become a momentum.
  struct Wanted {
    const TensorPlan* tensor = nullptr;
    size_t partition = 0;
    uint64_t round = 0;
    float grad_scale = 1;        // pushes carry gradient * grad_scale
    std::optional<float> beta1;  // in place of the servers'
  };

  SharedMomentum() = default;
  SharedMomentum(const SharedMomentum&) = delete;
  SharedMomentum& operator=(const SharedMomentum&) = delete;

  // True if some partition's pushes are momenta.
  bool CoversAny() const;

  // True if the partition's pushes are momenta.
  bool Covers(const TensorPlan& tensor, size_t partition) const;

  // True if a worker that got this answer, the weights as they are, must Put the state before its
  // next push.
  bool Lacks(const TensorPlan& tensor, size_t partition, const wire::PullReplyItem& answer) const;

  // Takes one tensor of the optimizer's state: m or v. The rest of the state is of no use.
  // FailedPrecondition: the state is not that of a frozen variance.
  // InvalidArgument, DataLoss: malformed.
  [[nodiscard]] absl::Status Put(const TensorPlan& tensor, size_t partition,
                                 const wire::PullReplyItem& answer,
                                 std::span<const std::byte> payload);

  // Turns the gradient into the momentum that is pushed, grad_scale included. Sets *unmasked to the
  // runs that it unmasks (PushItem.unmasked). Returns false, having changed nothing, if the
  // partition's pushes are gradients.
  // FailedPrecondition: the version before the round was not pulled.
  [[nodiscard]] absl::StatusOr<bool> Make(const Wanted& wanted, std::span<float> gradient,
                                          std::vector<uint32_t>* unmasked);

  // Repeats the servers' step from `answer`, a change of momentum.
  // REQUIRES: ValidatePayload was OK; `weights` are those of answer.base_version().
  // FailedPrecondition: the state was not Put.
  // InvalidArgument: answer.momentum().unmasked() are no runs.
  [[nodiscard]] absl::Status Step(const TensorPlan& tensor, size_t partition,
                                  const wire::PullReplyItem& answer,
                                  std::span<const std::byte> payload, std::span<float> weights);

 private:
  struct Part {
    Mutex mutex;
    AlignedBuffer momentum ABSL_GUARDED_BY(mutex);
    AlignedBuffer variance ABSL_GUARDED_BY(mutex);  // empty until Put
    uint64_t version ABSL_GUARDED_BY(mutex) = 0;    // of the momentum
    float beta1 ABSL_GUARDED_BY(mutex) = 0;
    float unscale ABSL_GUARDED_BY(mutex) = 1;  // of the momentum, to the units of pushes
  };

  // Returns null if the partition is not known. A part stays where it is.
  Part* Find(const TensorPlan& tensor, size_t partition) const;
  Part* FindOrAdd(const TensorPlan& tensor, size_t partition);

  mutable Mutex mutex_;
  std::map<std::pair<KeyId, size_t>, std::unique_ptr<Part>> parts_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace slimps

#endif  // SLIMPS_WORKER_TENSOR_SHARED_MOMENTUM_H_
