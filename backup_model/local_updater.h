// SPDX-License-Identifier: Apache-2.0
// The optimizer that a worker applies to its backup of the global weights: one step from w_i with
// its own full-precision gradient. The rules are those of torch.optim (SGD with momentum, Adam,
// AdamW).
// Source: SlimGC sections 3.5, 3.6.
//
// If the servers' optimizer remembers earlier gradients, a step by the gradient alone predicts only
// part of what they do: a tenth of the way at momentum 0.9. A momentum of this worker's own
// gradients leads away from theirs. But the global weights show the servers' momentum: w_(i-1) -
// w_i is rate * v_i. So with Moments::kServers the step is
//
//   SGD        w_i - (1 + look_ahead * momentum) *
//                    ((rate_i / rate_(i-1)) * momentum * (w_(i-1) - w_i) + loc_lr * g_i)
//   Nesterov   its own step from v_(i-1), which the change of the weights shows (update_plan.cc)
//   Adam(W)    m_i as Adam's own formula gives it for that change. The second moment is of this
//              worker's gradients, because the weights do not show the servers'.
//
// For SGD without look_ahead, and for Nesterov, this step misses only what the servers do by the
// other workers' gradients. Compressed pulls show the change as it was sent, so the prediction is
// as coarse as that.
//
//   auto updater = LocalUpdater::Create({.update = {.momentum = 0.9}, .learning_rate = 0.1});
//   LocalUpdaterState state;                                       // one per tensor
//   updater->Step(glo_buf, gradient, updater->learning_rate(), state, loc_buf);
//
// Every element is computed from the same element of the inputs, in fp32, in one fixed order of
// operations. So the same inputs give the same bits, on any machine and with any number of threads.
#ifndef SLIMPS_BACKUP_MODEL_LOCAL_UPDATER_H_
#define SLIMPS_BACKUP_MODEL_LOCAL_UPDATER_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "compress/codec/work_arena.h"
#include "compress/kernels/hyper.h"
#include "compress/kernels/update_plan.h"
#include "proto/base/buffer.h"

namespace slimps {

// Whose earlier gradients a step continues from.
enum class Moments {
  kOwn,      // the gradients that this updater was given
  kServers,  // all workers' gradients, as the global weights show them
};

struct LocalUpdaterOptions {
  // The rule. Its scale undoes the caller's scaling. A local store also steps by kAssign, which
  // replaces the weights by the gradient, and kAdd, which adds it.
  UpdateOptions update;
  Moments moments = Moments::kOwn;
  double learning_rate = 0.01;  // the global one
  // The local learning rate, if it differs. It stays in this proportion to the global rate of a
  // step. The part of the step that continues the servers' momentum uses the global rate all the
  // same.
  std::optional<double> loc_lr;
  // Without a loc_lr: that proportion.
  double own_weight = 1;
  // How much of the step after the predicted one, by momentum alone, is taken in advance. 0: none;
  // 1: all, as in Nesterov's method. Used with kServers and a momentum without nesterov. It damps
  // what the other workers' gradients, which the prediction misses, would excite.
  double look_ahead = 0;
  int threads = 0;  // threads that step a large tensor; 0: one per core
};

// What an optimizer remembers of one tensor. Its first step makes it. Thread-compatible.
struct LocalUpdaterState {
  int64_t steps = 0;
  AlignedBuffer first_moment;   // momentum or Adam's m; kServers: weights one step ago
  AlignedBuffer second_moment;  // Adam's v
  PastStep past;                // kServers: the newest step
};

// Returns OK if all numbers are in range.
// InvalidArgument: negative, not finite, or a momentum from 1 (says which, and the value).
[[nodiscard]] absl::Status CheckHyper(const Hyper& hyper);

// Thread-safe: holds only options. A state belongs to one call at a time.
class LocalUpdater final {
 public:
  // InvalidArgument: an option out of range (says which, and the value).
  [[nodiscard]] static absl::StatusOr<LocalUpdater> Create(const LocalUpdaterOptions& options);

  double learning_rate() const { return options_.learning_rate; }

  // How many threads step a large tensor, the caller's included.
  int threads() const { return arena_->threads(); }

  // How many moments go with a tensor: 0 to 2. One means LocalUpdaterState's first_moment.
  size_t state_tensors() const;

  // Sets updated[k] to base[k] moved by one step along gradient[k], at the servers'
  // `learning_rate`. NaN passes through, so refuse it before.
  // REQUIRES: all three spans have one length, the same in each call with `state`; `updated` is
  // `base` itself or does not overlap it; with kServers, `base` is what the servers made of the
  // last base.
  void Step(std::span<const float> base, std::span<const float> gradient, double learning_rate,
            LocalUpdaterState& state, std::span<float> updated) const {
    Step(base, gradient,
         {.learning_rate = learning_rate, .weight_decay = options_.update.weight_decay}, state,
         updated);
  }

  // The same at `hyper`.
  // REQUIRES: also, CheckHyper(hyper) was OK.
  void Step(std::span<const float> base, std::span<const float> gradient, const Hyper& hyper,
            LocalUpdaterState& state, std::span<float> updated) const;

  // Takes the place of a Step without a gradient: updated[k] = base[k].
  // REQUIRES: as Step, but no overlap.
  void Skip(std::span<const float> base, const Hyper& hyper, LocalUpdaterState& state,
            std::span<float> updated) const;

 private:
  using UpdatePass = void (*)(const UpdateStep& step, const UpdateBlock& block);

  explicit LocalUpdater(const LocalUpdaterOptions& options);
  // Makes one pass over the block. Several threads share a large one.
  void Update(UpdatePass pass, const UpdateStep& plan, const UpdateBlock& block) const;

  LocalUpdaterOptions options_;
  FollowOptions follow_;
  std::shared_ptr<const WorkArena> arena_;
};

}  // namespace slimps

#endif  // SLIMPS_BACKUP_MODEL_LOCAL_UPDATER_H_
