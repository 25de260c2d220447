// The optimizer that a worker applies to its backup of the global weights: one step from w_i with
// its own full-precision gradient. Semantics are torch.optim's (SGD with momentum, Adam, AdamW).
// Source: SlimGC sections 3.5, 3.6.
//
// Where the servers' optimizer remembers earlier gradients, a step by the gradient alone predicts a
// tenth of the way that they go, and a momentum of this worker's own gradients leads away from
// theirs. The global weights tell their momentum: w_(i-1) - w_i is rate * v_i. With
// Moments::kServers the step is therefore
//
//   SGD        w_i - (1 + look_ahead * momentum) *
//                    ((rate_i / rate_(i-1)) * momentum * (w_(i-1) - w_i) + loc_lr * g_i)
//   Nesterov   alike; v_i follows from v_(i-1) and the way that the weights went (update_plan.cc)
//   Adam(W)    m_i as Adam's own formula has it for that way, with the second moment of this
//              worker's gradients in place of the servers', which the weights do not tell
//
// and misses, for SGD without look_ahead and for Nesterov, what the servers do by just the other
// workers' gradients.
// Compressed pulls show the change as it was sent: the prediction is then as coarse as that.
//
//   auto updater = LocalUpdater::Create({.learning_rate = 0.1, .momentum = 0.9});
//   LocalUpdaterState state;                                       // one per tensor
//   updater->Step(glo_buf, gradient, updater->learning_rate(), state, loc_buf);
//
// Every element is computed from the same element of the inputs alone, in fp32, in one fixed order
// of operations: same inputs, same bits, on any machine and with any number of threads.
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
#include "compress/kernels/update_plan.h"
#include "proto/base/buffer.h"

namespace slimps {

// kAssign and kAdd, which a local store steps by, put the gradient in the weights' place and add it to them.
using LocalOptimizer = UpdateKind;

// Whose earlier gradients a step goes on from.
enum class Moments {
  kOwn,      // of the gradients that this updater was given
  kServers,  // of all workers' gradients, read off the global weights
};

struct LocalUpdaterOptions {
  LocalOptimizer optimizer = LocalOptimizer::kSgd;
  Moments moments = Moments::kOwn;
  double learning_rate = 0.01;  // the global one
  // The local one, where it differs: it stays in this proportion to the global rate of a step. What
  // is known of the servers' momentum moves by the global rate all the same.
  std::optional<double> loc_lr;
  // With kServers and a momentum that is not nesterov's: how much of the step after the predicted
  // one, by momentum alone, is taken in advance. 0: none; 1: all, as Nesterov's method has it. That
  // damps what the other workers' gradients, which the prediction misses, would excite.
  double look_ahead = 0;
  double momentum = 0;      // SGD only; 0: plain
  bool nesterov = false;    // SGD only; needs momentum > 0
  double weight_decay = 0;  // SGD, Adam: added to the gradient; AdamW: decoupled
  double beta1 = 0.9;
  double beta2 = 0.999;
  double epsilon = 1e-8;
  double rescale_grad = 1;   // multiplies the gradient first; undoes what the caller scaled it by
  double clip_gradient = 0;  // by element, after rescaling; 0: off
  int threads = 0;           // that step a large tensor; 0: as many as there are cores
};

// In place of the options' numbers, for one step: the servers'.
struct LocalHyper {
  double learning_rate = 0;
  double weight_decay = 0;
};

// What an optimizer remembers of one tensor; made by its first step. Thread-compatible.
struct LocalUpdaterState {
  int64_t steps = 0;
  AlignedBuffer first_moment;   // momentum, or Adam's m; of kServers: the weights one step ago
  AlignedBuffer second_moment;  // Adam's v
  PastStep past;                // of kServers: the newest step
};

// InvalidArgument: negative or not finite (says which, and the value).
[[nodiscard]] absl::Status CheckLocalHyper(const LocalHyper& hyper);

// Thread-safe: holds options only. A state belongs to one call at a time.
class LocalUpdater final {
 public:
  // InvalidArgument: an option outside its range (says which, and the value).
  [[nodiscard]] static absl::StatusOr<LocalUpdater> Create(const LocalUpdaterOptions& options);

  double learning_rate() const { return options_.learning_rate; }

  // That step a large tensor, the caller's included.
  int threads() const { return arena_->threads(); }

  // How many moments go with a tensor: 0 to 2, the first of LocalUpdaterState before the second.
  size_t state_tensors() const;

  // updated[k] = base[k] moved by one step along gradient[k], at the servers' `learning_rate`.
  // `updated` may be `base` itself, else must not overlap it. REQUIRES: all three have one length,
  // the same in each call with `state`; with kServers, `base` is what the servers made of the base
  // before. NaN passes through: refuse it before.
  void Step(std::span<const float> base, std::span<const float> gradient, double learning_rate,
            LocalUpdaterState& state, std::span<float> updated) const {
    Step(base, gradient, LocalHyper{learning_rate, options_.weight_decay}, state, updated);
  }
  // REQUIRES besides: CheckLocalHyper(hyper) was OK.
  void Step(std::span<const float> base, std::span<const float> gradient, const LocalHyper& hyper,
            LocalUpdaterState& state, std::span<float> updated) const;

  // In place of a Step for which there is no gradient: updated[k] = base[k]. REQUIRES: as Step; no
  // overlap.
  void Skip(std::span<const float> base, const LocalHyper& hyper, LocalUpdaterState& state,
            std::span<float> updated) const;

 private:
  using UpdatePass = void (*)(const UpdateStep& step, const UpdateBlock& block);

  explicit LocalUpdater(const LocalUpdaterOptions& options);
  // One pass over the block, a large one by several threads.
  void Update(UpdatePass pass, const UpdateStep& plan, const UpdateBlock& block) const;

  LocalUpdaterOptions options_;
  UpdateOptions update_;  // the same, as kernels know them
  FollowOptions follow_;  // own_weight: loc_lr in proportion to learning_rate
  std::shared_ptr<const WorkArena> arena_;
};

}  // namespace slimps

#endif  // SLIMPS_BACKUP_MODEL_LOCAL_UPDATER_H_
