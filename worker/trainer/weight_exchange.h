// How gradients leave and weights come back, one round per training step. Two ways:
//
//   synchronous    compute on w_i | push | pull w_(i+1) and wait for it
//   backup model   compute on w_loc(i) | push | wait for w_i | w_loc(i+1) = w_i - local step;
//                  the pull of w_(i+1) goes on behind the next step's compute
//
//   exchange->BeginStep();          // the model's parameters hold this step's weights
//   model->ForwardBackward(batch, [&](size_t i, auto g) { exchange->OnGradient(i, g); });
//   exchange->EndStep();
//   ...
//   exchange->Drain();              // they hold the newest global weights
//
// A step without data is BeginStep and EndStep alone: this worker counts as zero in its round.
#ifndef SLIMPS_WORKER_TRAINER_WEIGHT_EXCHANGE_H_
#define SLIMPS_WORKER_TRAINER_WEIGHT_EXCHANGE_H_

#include <cstddef>
#include <functional>
#include <memory>
#include <span>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "backup_model/backup_model.h"
#include "proto/slimps.pb.h"
#include "worker/kvstore.h"
#include "worker/trainer/gradient_pusher.h"
#include "worker/trainer/model.h"

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
  absl::Duration timeout = absl::Seconds(60);  // of one wait for weights
};

// Owned by the training thread.
class WeightExchange {
 public:
  virtual ~WeightExchange() = default;
  [[nodiscard]] virtual absl::Status BeginStep() = 0;
  // Keeps errors for EndStep. `gradient` must stay as it is until then.
  virtual void OnGradient(size_t index, std::span<const float> gradient) = 0;
  [[nodiscard]] virtual absl::Status EndStep() = 0;
  [[nodiscard]] virtual absl::Status Drain() = 0;
  virtual ExchangeTimes times() const = 0;
};

// Both write into the parameters' memory, which must stay until the store is closed, even after an
// error: a pull may still be under way then. `store` must outlive the exchange.
std::unique_ptr<WeightExchange> MakeSyncExchange(KVStore* store,
                                                 std::span<const Parameter> parameters,
                                                 const ExchangeOptions& options);
// Starts from the parameters' present values as version 0. The local learning rate follows `schedule`, as the servers'. InvalidArgument: an updater's option.
[[nodiscard]] absl::StatusOr<std::unique_ptr<WeightExchange>> MakeBackupExchange(
    KVStore* store, std::span<const Parameter> parameters, const ExchangeOptions& options,
    BackupModelOptions backup, const wire::LearningRateSchedule& schedule);

}  // namespace slimps

#endif  // SLIMPS_WORKER_TRAINER_WEIGHT_EXCHANGE_H_
