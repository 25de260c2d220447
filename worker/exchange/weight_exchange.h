// How gradients leave and weights come back, one round per training step. Two ways:
//
//   synchronous    compute on w_i | push | pull w_(i+1) and wait for it
//   backup model   compute on w_loc(i) | push | wait for w_i | w_loc(i+1) = w_i - local step;
//                  the pull of w_(i+1) goes on behind the next step's compute
//
//   auto exchange = StartExchange(store, parameters, optimizer, options);   // collective
//   (*exchange)->BeginStep();       // the model's parameters hold this step's weights
//   model->ForwardBackward(batch, [&](size_t i, auto g) { (*exchange)->OnGradient(i, g); });
//   (*exchange)->EndStep();
//   ...
//   (*exchange)->Drain();           // they hold the newest global weights
//
// A step without data is BeginStep and EndStep alone: this worker counts as zero in its round.
#ifndef SLIMPS_WORKER_EXCHANGE_WEIGHT_EXCHANGE_H_
#define SLIMPS_WORKER_EXCHANGE_WEIGHT_EXCHANGE_H_

#include <cstddef>
#include <memory>
#include <optional>
#include <span>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "backup_model/backup_model.h"
#include "proto/slimps.pb.h"
#include "worker/exchange/gradient_pusher.h"
#include "worker/exchange/parameter.h"
#include "worker/kvstore.h"

namespace slimps {

struct ExchangeTimes {
  absl::Duration wait;          // the training thread stood still for weights
  absl::Duration local_update;  // merging w_i and the local step
  // A round's communication (first push to last weight arrived) less what the training thread stood
  // still for it.
  absl::Duration overlap;
};

struct ExchangeOptions {
  NonFinite non_finite = NonFinite::kStop;
  double clip_norm = 0;  // of the whole gradient, as gradient_pusher.h has it; 0: none
  absl::Duration timeout = absl::Seconds(60);  // of one wait for weights
  // nullopt: synchronous. Where its updater's moments are the servers', StartExchange makes it
  // LocalStepOf what they step by, with the same loc_lr and threads.
  std::optional<BackupModelOptions> backup = std::nullopt;
  const Clock* clock = MachineClock();
};

// A backup model whose local step is the servers' step as far as this worker can know it.
inline BackupModelOptions MirroringBackup(std::optional<double> loc_lr = std::nullopt) {
  return {.updater = {.moments = Moments::kServers, .loc_lr = loc_lr}, .on_event = nullptr};
}

// Owned by the training thread.
class WeightExchange {
 public:
  virtual ~WeightExchange() = default;
  // The parameters hold this step's weights.
  [[nodiscard]] virtual absl::Status BeginStep() = 0;
  // Keeps errors for EndStep. `gradient` must stay as it is until then.
  virtual void OnGradient(size_t index, std::span<const float> gradient) = 0;
  [[nodiscard]] virtual absl::Status EndStep() = 0;
  // Learning rate and weight decay of one parameter from the next OnGradient on, at the servers and in the local step, in
  // place of the optimizer's own; a loc_lr keeps its proportion to it. On every worker alike. InvalidArgument: not a finite
  // number from 0.
  [[nodiscard]] virtual absl::Status SetHyper(size_t index, const Hyper& hyper) = 0;
  // The parameters hold the weights after the newest step that has ended, until the next BeginStep.
  [[nodiscard]] virtual absl::Status Drain() = 0;
  virtual ExchangeTimes times() const = 0;
};

// Declares the parameters, lets the servers step by `optimizer`, gives every worker rank 0's values, and makes the exchange.
// Collective. Writes into the parameters' memory, which must stay until the store is closed, even after an error: a pull
// may still be under way then. `store` must outlive the exchange. InvalidArgument: what cannot go together
// (combination.h), or an option of the local step.
[[nodiscard]] absl::StatusOr<std::unique_ptr<WeightExchange>> StartExchange(
    KVStore* store, std::span<const Parameter> parameters, const wire::OptimizerSpec& optimizer,
    const ExchangeOptions& options);

// The servers' step as this worker can predict it: their optimizer, with the momentum that the
// global weights show, by this worker's gradient in place of all workers' mean. Where `store` has
// the servers take a vote (signsgd), that gradient's signs; where its codec applies momentum before
// it sends (dgc), a momentum of this worker's own gradients, since what is sent of it, and when,
// tells nothing of the next step.
LocalUpdaterOptions LocalStepOf(const wire::OptimizerSpec& optimizer, const KVStore& store);

// The two ways, for keys that are initialised.
std::unique_ptr<WeightExchange> MakeSyncExchange(KVStore* store,
                                                 std::span<const Parameter> parameters,
                                                 const ExchangeOptions& options);
// REQUIRES: options.backup. Starts from the parameters' present values as version 0. The local learning rate follows
// `schedule`, as the servers'.
[[nodiscard]] absl::StatusOr<std::unique_ptr<WeightExchange>> MakeBackupExchange(
    KVStore* store, std::span<const Parameter> parameters, const ExchangeOptions& options,
    const wire::LearningRateSchedule& schedule);

}  // namespace slimps

#endif  // SLIMPS_WORKER_EXCHANGE_WEIGHT_EXCHANGE_H_
