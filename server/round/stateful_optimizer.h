// SPDX-License-Identifier: Apache-2.0
// A partition's optimizer with the state that it keeps from step to step: up to three fp32 tensors
// as long as the weights, and how often they were updated. The state is pulled and put back on its
// own.
//
//   optimizer.Step({.payloads = views, .before = w, .after = next},
//                  {.round = 7, .contributors = 2});
//
// If workers pushed only rows (rows.h) in a round, it steps just those rows. Other rows and their
// state stay as they are. A round in which no worker pushed a gradient steps nothing and does not
// count as an update. Without an optimizer the sum, which is zero in all other rows, replaces the
// weights.
//
// ONEBIT_ADAM freezes its variance after so many updates. From then on workers push their momenta,
// and StepMomentum averages these, encodes the mean with error feedback, and steps by what the
// encoding says. Workers repeat that step (wire::MomentumExchange). The third tensor is the error.
// Elements whose variance is 0 are masked (compress/kernels/frozen_variance.h).
// Source: Tang et al., "1-bit Adam", ICML 2021, algorithm 1, lines 9 to 12.
#ifndef SLIMPS_SERVER_ROUND_STATEFUL_OPTIMIZER_H_
#define SLIMPS_SERVER_ROUND_STATEFUL_OPTIMIZER_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "proto/base/buffer.h"
#include "proto/slimps.pb.h"
#include "server/round/aggregate.h"
#include "server/round/change_codecs.h"
#include "server/round/optimizer.h"
#include "server/round/partition_spec.h"
#include "server/round/versioned_weights.h"
#include "server/saved/image.h"

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

  // Returns what the sum of the workers' payloads is multiplied by, without a round's
  // gradient_scale.
  // REQUIRES: contributors > 0.
  double ScaleOfSum(uint32_t contributors) const {
    return optimizer_->ScaleOfMean(contributors) / contributors;
  }

  // True if the variance of ONEBIT_ADAM is frozen: the next round's pushes are momenta.
  bool frozen() const { return frozen_; }

  // A round of momenta.
  struct MomentumRound {
    std::span<const PayloadView> payloads;
    std::span<const float> before;
    std::span<float> after;
    const ChangeCodec* codec = nullptr;  // of the answer; null: raw fp32
    EncodeContext context = {};
    std::span<std::byte> payload;             // of the answer; at least MomentumBytes(codec)
    std::span<const uint32_t> unmasked = {};  // runs, of which the first kMaxUnmaskedRuns count
  };
  size_t MomentumBytes(const ChangeCodec* codec) const;

  // Steps the weights by one round of momenta. Returns the answer that it wrote. The answer is raw
  // if the codec cannot encode the mean, or makes it no smaller, or is further off than zero.
  // REQUIRES: frozen(); moment.contributors > 0.
  EncodedChange StepMomentum(const MomentumRound& round, Optimizer::Moment moment);

  // Returns what workers need for their next push, and to repeat the last step. nullopt: the next
  // push is a gradient.
  std::optional<wire::MomentumExchange> exchange() const;

  // Returns a copy of tensor number `state->tensor()` (from 1), or kAbsent if there is none or no
  // tensor was ever updated nor put: all are zero. Fills in the other fields of `state`. The copy
  // gets `version`.
  WireValue Share(uint64_t version, wire::OptimizerState* state) const;

  // Puts back one tensor; kAbsent stands for zeros. A load number (`state.load`) that is not newer
  // than the last one changes nothing.
  // FailedPrecondition: the state is of another optimizer.
  // InvalidArgument or DataLoss: malformed.
  [[nodiscard]] absl::Status Put(const wire::OptimizerState& state, const ClaimedPayload& value);

  // Numbers loads of state as `present` does, which this takes the place of.
  void TakeLoads(const StatefulOptimizer& present) { loads_ = present.loads_; }

  // Saves the optimizer and a copy of its state.
  void Save(saved::Optimizer* fields, PartitionImage* image) const;

  // Takes over what Save saved.
  // REQUIRES: nothing was stepped.
  // DataLoss: the image has no such state.
  [[nodiscard]] absl::Status Restore(const saved::Optimizer& fields, const PartitionImage& image);

 private:
  absl::Status CheckPut(const wire::OptimizerState& state, const ClaimedPayload& value) const;
  bool untouched() const { return updates_ == 0 && loads_ == decltype(loads_){}; }
  void Grow(size_t tensors);
  size_t state_tensors() const { return frozen_ ? 3 : optimizer_->state_tensors(); }
  void Freeze(uint32_t contributors);
  void Announce(const Optimizer::Step& step, uint32_t contributors,
                std::span<const uint32_t> unmasked = {});

  const PartitionSpec& spec_;
  std::shared_ptr<const Optimizer> optimizer_;
  std::vector<AlignedBuffer> tensors_;  // fp32, as long as the weights
  uint64_t updates_ = 0;                // how often tensors_ were updated
  std::array<uint64_t, 3> loads_ = {};  // newest load number of each tensor
  bool frozen_ = false;
  wire::MomentumExchange exchange_;  // of the last step, if frozen_
};

}  // namespace slimps

#endif  // SLIMPS_SERVER_ROUND_STATEFUL_OPTIMIZER_H_
