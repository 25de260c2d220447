// SPDX-License-Identifier: Apache-2.0
// WeightExchange: how gradients leave and weights come back, one round per training step. Two ways:
//
//   synchronous    compute on w_i | push | wait for w_(i+1)
//   backup model   compute on w_loc(i) | push | wait for w_i | w_loc(i+1) = w_i - local step;
//                  w_(i+1) arrives behind the next step's compute
//
// Each tensor goes this way for itself: it is pulled, or stepped locally, as soon as its gradient
// has been pushed, while backward goes on with the others (next_weights.h).
//
//   auto exchange = StartExchange(store, parameters, optimizer, options);   // collective
//   (*exchange)->BeginStep();       // the model's parameters hold this step's weights
//   model->ForwardBackward(batch, [&](size_t i, auto g) { (*exchange)->OnGradient(i, g); });
//   (*exchange)->EndStep();
//   ...
//   (*exchange)->Drain();           // the parameters hold the newest global weights
//
// A step without data is BeginStep and EndStep alone: this worker contributes nothing to its round.
#ifndef SLIMPS_WORKER_EXCHANGE_WEIGHT_EXCHANGE_H_
#define SLIMPS_WORKER_EXCHANGE_WEIGHT_EXCHANGE_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "backup_model/backup_model.h"
#include "proto/base/mutex.h"
#include "proto/slimps.pb.h"
#include "worker/device/place.h"
#include "worker/exchange/gradient_pusher.h"
#include "worker/exchange/host_copies.h"
#include "worker/exchange/next_weights.h"
#include "worker/exchange/parameter.h"
#include "worker/kvstore.h"

namespace slimps {

struct ExchangeTimes {
  absl::Duration wait;          // the training thread waited for weights
  absl::Duration local_update;  // merging w_i, and the local step
  // A round's communication (first push to last weight arrived) less the time for which the
  // training thread waited for it.
  absl::Duration overlap;
};

struct ExchangeOptions {
  NonFinite non_finite = NonFinite::kStop;
  double clip_norm = 0;  // WeightExchange::SetClipNorm
  // For one wait for weights. Zero: a little longer than the store's, whose error says more and so
  // comes first.
  absl::Duration timeout = absl::ZeroDuration();
  // True: EndStep does not wait for weights, but for local steps alone. AwaitWeights waits for a
  // parameter before forward reads it.
  bool overlap_forward = false;
  // nullopt: synchronous. If its updater's moments are the servers', StartExchange replaces the
  // updater by LocalStepOf, and keeps its loc_lr and threads.
  std::optional<BackupModelOptions> backup = std::nullopt;
  // A checkpoint's folder, from which the job goes on; "": it begins anew.
  std::string resume;
  const Clock* clock = MachineClock();

  // True if gradients on a GPU are copied before they are pushed: a local step reads them on the
  // host, as does the check whether to skip them.
  bool copies_from_gpus() const { return backup.has_value() || non_finite == NonFinite::kSkip; }
};

// Returns a backup model whose local step is the servers' step, as far as this worker can know it.
inline BackupModelOptions MirroringBackup(std::optional<double> loc_lr = std::nullopt) {
  return {.updater = {.moments = Moments::kServers, .loc_lr = loc_lr}, .on_event = nullptr};
}

// Owned by the training thread.
class WeightExchange final {
 public:
  // Waits until no gradient is read any more.
  ~WeightExchange();

  // Begins a step. On success the parameters hold the step's weights, unless AwaitWeights has to be
  // called; those on a GPU, for the work that their stream is given from then on.
  [[nodiscard]] absl::Status BeginStep();

  // Pushes a gradient. Keeps errors for EndStep. On a GPU, it is read after the work that its
  // stream has been given, for which this does not wait.
  // REQUIRES: `gradient` stays as it is until EndStep returns or IsRead(index) is true.
  void OnGradient(size_t index, std::span<const float> gradient, const Place& place);
  void OnGradient(size_t index, std::span<const float> gradient) {
    OnGradient(index, gradient, Place());
  }

  // Same, for a gradient that is zero but for `rows`, as KVStore::PushRowSparse takes them: the
  // values may lie on a GPU, and this waits for their copy. The
  // servers then step these rows alone, unless another worker pushes a whole gradient.
  // Unimplemented: the backup model, whose local step needs whole gradients. Nothing was pushed.
  [[nodiscard]] absl::Status OnRows(size_t index, std::span<const int64_t> rows,
                                    std::span<const float> values, const Place& place);
  [[nodiscard]] absl::Status OnRows(size_t index, std::span<const int64_t> rows,
                                    std::span<const float> values) {
    return OnRows(index, rows, values, Place());
  }

  // Returns true if this step no longer reads the gradient of this parameter, which is on a GPU or
  // on loan: its memory may be used for something else. Says nothing, by false, of others.
  bool IsRead(size_t index) const;

  // Ends the step: pushes the rest, and writes the next step's weights to the parameters as soon as
  // they are there. Returns the step's first error, when all are written; with overlap_forward,
  // when no gradient is read any more.
  [[nodiscard]] absl::Status EndStep();

  // Waits until the parameter holds this step's weights, with overlap_forward. Returns the first
  // error of the step before.
  [[nodiscard]] absl::Status AwaitWeights(size_t index);
  // Returns true if AwaitWeights(index) would return OK at once.
  bool HasWeights(size_t index) const {
    return !options_.overlap_forward || next_->IsWritten(index);
  }

  // Writes a parameter's weights to `values` from now on: the other one of two memories on the host
  // (Parameter.spare), which has to stay until this sets another or the exchange is gone. With the
  // backup model the former one has to stay as it is until the next EndStep: it is loc_buf.
  // REQUIRES: after BeginStep and, with overlap_forward, AwaitWeights; before its gradient.
  // InvalidArgument: another length than the parameter's, or the parameter has no spare memory.
  // FailedPrecondition: its gradient of this step has gone out.
  [[nodiscard]] absl::Status SetMemory(size_t index, std::span<float> values);

  // Sets the numbers of one parameter from the next OnGradient on. They replace the optimizer's, at
  // the servers and in the local step. A loc_lr keeps its proportion to the learning rate. The
  // momentum of a codec stays.
  // REQUIRES: every worker makes the same call.
  // InvalidArgument: a number is out of range (hyper.h).
  [[nodiscard]] absl::Status SetHyper(size_t index, const Hyper& hyper);

  // Bounds the norm of the workers' mean gradient, of all parameters together, from the next step
  // on, as torch.nn.utils.clip_grad_norm_ does; 0: no bound. A step with a norm that is not finite
  // is skipped on all servers. The weights of a step come only after all of its gradients have
  // arrived. The backup model's local step uses what the newest known mean was multiplied by.
  // REQUIRES: no gradient of the step under way was pushed. Every worker makes the same call.
  // InvalidArgument: negative or not finite; not dist_sync; onebit_adam, or a codec of votes.
  [[nodiscard]] absl::Status SetClipNorm(double norm);

  // Returns what became of clipped steps: in a synchronous exchange up to the newest, with the
  // backup model or overlap_forward up to the one before.
  Clipping clipping() const;

  // Waits for the weights after the newest finished step. The parameters hold them until the next
  // BeginStep. Writes them only with the backup model: else they were written when that step ended,
  // to the memory that was the spare one then.
  // FailedPrecondition: the backup model has gone on with gradients of a step that has not ended.
  [[nodiscard]] absl::Status Drain();

  // Saves the job in `folder` (KVStore::Save) with this exchange's own state, between two steps.
  // Collective. Errors: KVStore::Save's.
  [[nodiscard]] absl::Status Save(const std::string& folder);

  // Returns how many steps are finished, those before ExchangeOptions.resume included.
  size_t steps() const;

  ExchangeTimes times() const;

 private:
  friend absl::StatusOr<std::unique_ptr<WeightExchange>> MakeExchange(
      KVStore* store, std::span<const Parameter> parameters, const ExchangeOptions& options,
      const wire::OptimizerSpec& optimizer, const LoadedCheckpoint& resumed);

  WeightExchange(KVStore* store, std::span<const Parameter> parameters,
                 std::vector<NextTensor> tensors, const ExchangeOptions& options,
                 std::shared_ptr<BackupModel> backup, const wire::OptimizerSpec& optimizer,
                 int64_t finished);

  // Pushes a gradient on the host, or one that is lent.
  void Push(size_t index, OwnedGradient gradient, const Place& place);
  absl::Status ExchangeRound();
  absl::Status AwaitLoans();
  // Returns what the local step's gradient is multiplied by, as the newest known mean gradient was.
  double LocalScale() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Runs a wait of the training thread, and counts how long it took.
  absl::Status Await(const char* call, absl::FunctionRef<absl::Status(SteadyTime deadline)> wait);
  // With overlap_forward: awaits what the step before has left to AwaitWeights.
  absl::Status AwaitForward();
  // Counts the part of a round's communication during which the training thread did not wait. Its
  // first push and the version of its weights say which.
  void NoteOverlap(SteadyTime first_push, int64_t version);
  SteadyTime Deadline() const { return options_.clock->Now() + options_.timeout; }

  KVStore* const store_;
  const std::span<const Parameter> parameters_;
  const ExchangeOptions options_;
  const std::shared_ptr<BackupModel> backup_;  // null: synchronous
  const wire::OptimizerSpec optimizer_;        // the servers'
  const std::shared_ptr<NextWeights> next_;
  int64_t iteration_;  // the iteration that was begun last
  int64_t finished_;   // and ended
  bool is_written_;    // the parameters hold the weights of iteration finished_ + 1
  // The first pushes of the newest round that has ended, and of the round before.
  SteadyTime newest_push_ = SteadyTime::InfiniteFuture();
  SteadyTime former_push_ = SteadyTime::InfiniteFuture();
  ExchangeTimes times_;
  absl::Duration waited_;  // of times_.wait, since a round's overlap was counted

  mutable Mutex mutex_;                               // of a step's pushes
  bool early_ ABSL_GUARDED_BY(mutex_) = false;        // what is pushed goes on at once
  bool has_gone_on_ ABSL_GUARDED_BY(mutex_) = false;  // something has, in this step
  GradientPusher pusher_ ABSL_GUARDED_BY(mutex_);
  std::vector<OwnedGradient> gradients_ ABSL_GUARDED_BY(mutex_);  // of this step; for local steps
  HostCopies copies_;  // declared last: its thread pushes
};

// Declares the parameters, sets the servers' `optimizer`, gives every worker rank 0's values, and
// makes the exchange. Collective: it returns when every worker has called it.
// With options.resume it loads that checkpoint, and sets `optimizer` if it is another than the
// checkpoint's.
// REQUIRES: the parameters' memory stays until the store is closed, even after an error, since a
// pull may still write into it. `store` outlives the exchange.
// InvalidArgument: options that do not go together (combination.h), or an option of the local step;
// a checkpoint of another kind of optimizer. Otherwise KVStore::Load's errors.
[[nodiscard]] absl::StatusOr<std::unique_ptr<WeightExchange>> StartExchange(
    KVStore* store, std::span<const Parameter> parameters, const wire::OptimizerSpec& optimizer,
    const ExchangeOptions& options);

// Returns the servers' step as this worker can predict it: their optimizer, with the momentum that
// the global weights show, applied to this worker's gradient in place of all workers' mean. There
// are two exceptions:
// - The servers of `store` take a vote (signsgd): the step uses the signs of this worker's
//   gradient.
// - The codec of `store` applies momentum before it sends (dgc): the step has a momentum of this
//   worker's own gradients, since what the codec sends, and when, tells nothing about the next
//   step.
LocalUpdaterOptions LocalStepOf(const wire::OptimizerSpec& optimizer, const KVStore& store);

// Makes an exchange that goes on from `resumed`. `optimizer` is the servers'. With the backup model
// it starts from the parameters' present values as version resumed.rounds, and the local learning
// rate follows the optimizer's schedule.
// REQUIRES: every parameter's key is initialised.
// InvalidArgument: as StartExchange.
[[nodiscard]] absl::StatusOr<std::unique_ptr<WeightExchange>> MakeExchange(
    KVStore* store, std::span<const Parameter> parameters, const ExchangeOptions& options,
    const wire::OptimizerSpec& optimizer, const LoadedCheckpoint& resumed = {});

}  // namespace slimps

#endif  // SLIMPS_WORKER_EXCHANGE_WEIGHT_EXCHANGE_H_
