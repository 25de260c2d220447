// SPDX-License-Identifier: Apache-2.0
// A partition's optimizer with the state that it keeps from step to step: up to two fp32 tensors as
// long as the weights, and how often they were updated. The state is pulled and put back on its
// own.
//
//   optimizer.Step({.payloads = views, .before = w, .after = next},
//                  {.round = 7, .contributors = 2});
//
// If workers pushed only rows (rows.h) in a round, it steps just those rows. Other rows and their
// state stay as they are. A round in which no worker pushed a gradient steps nothing and does not
// count as an update. Without an optimizer the sum, which is zero in all other rows, replaces the
// weights.
#ifndef SLIMPS_SERVER_ROUND_STATEFUL_OPTIMIZER_H_
#define SLIMPS_SERVER_ROUND_STATEFUL_OPTIMIZER_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "proto/base/buffer.h"
#include "proto/slimps.pb.h"
#include "server/round/aggregate.h"
#include "server/round/optimizer.h"
#include "server/round/partition_spec.h"
#include "server/round/versioned_weights.h"

namespace slimps {

// Owned by the shard thread.
class StatefulOptimizer final {
 public:
  // Begins with zeros. REQUIRES: `spec` outlives it; `optimizer` is not null.
  StatefulOptimizer(const PartitionSpec& spec, std::shared_ptr<const Optimizer> optimizer);

  wire::OptimizerSpec::Kind kind() const { return optimizer_->spec().kind(); }

  // Puts another optimizer in force. The state is kept if the kind stays; another kind begins with
  // zeros. Throws std::bad_alloc, having changed nothing.
  void Replace(std::shared_ptr<const Optimizer> optimizer);

  // Steps the weights by one round. Fills in the fields of `round` and `moment` that it knows:
  // optimizer, step, state and touched_only; updates.
  void Step(AggregateInput round, Optimizer::Moment moment);

  // Returns a copy of tensor number `state->tensor()` (from 1), or kAbsent if there is none. Fills
  // in the other fields of `state`. The copy gets `version`.
  WireValue Share(uint64_t version, wire::OptimizerState* state) const;

  // Puts back one tensor. A load number (`state.load`) that is not newer than the last one changes
  // nothing.
  // FailedPrecondition: the state is of another optimizer.
  // InvalidArgument or DataLoss: malformed.
  [[nodiscard]] absl::Status Put(const wire::OptimizerState& state, const ClaimedPayload& value);

 private:
  absl::Status CheckPut(const wire::OptimizerState& state, const ClaimedPayload& value) const;
  void Grow(size_t tensors);

  const PartitionSpec& spec_;
  std::shared_ptr<const Optimizer> optimizer_;
  std::vector<AlignedBuffer> tensors_;  // fp32, as long as the weights
  uint64_t updates_ = 0;                // how often tensors_ were updated
  std::array<uint64_t, 2> loads_ = {};  // newest load number of each tensor
};

}  // namespace slimps

#endif  // SLIMPS_SERVER_ROUND_STATEFUL_OPTIMIZER_H_
