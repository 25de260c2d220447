// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "compress/kernels/update_plan.h"
#include "proto/base/awaited.h"
#include "proto/base/clock.h"
#include "proto/base/status_copy.h"
#include "proto/base/status_macros.h"
#include "proto/base/trace/trace.h"
#include "proto/learning_rate.h"
#include "worker/activity.h"
#include "worker/device/device.h"
#include "worker/device/host_values.h"
#include "worker/exchange/round_arrivals.h"
#include "worker/exchange/weight_exchange.h"

namespace slimps {

namespace {

// Drives the backup model: iteration i is step i, and version i is the weights after round i. Owned
// by the training thread.
class BackupExchange final : public WeightExchange {
 public:
  // `gpus`: the devices of the parameters; null for one on the host.
  BackupExchange(KVStore* store, std::span<const Parameter> parameters, std::vector<Device*> gpus,
                 const ExchangeOptions& options, std::shared_ptr<BackupModel> backup,
                 const wire::OptimizerSpec& optimizer, int64_t finished)
      : store_(store),
        parameters_(parameters),
        gpus_(std::move(gpus)),
        options_(options),
        pusher_(store, parameters,
                {.non_finite = options.non_finite,
                 .keeps_copies = true,
                 .timeout = options.timeout,
                 .clock = options.clock}),
        backup_(std::move(backup)),
        optimizer_(optimizer),
        iteration_(finished),
        finished_(finished) {}

  absl::Status BeginStep() override {
    ++iteration_;
    backup_->set_learning_rate(
        LearningRateAt(options_.backup->updater.learning_rate, optimizer_.schedule(),
                       store_->former_rounds() + static_cast<uint64_t>(iteration_)));
    pusher_.BeginRound();
    written_ = MakeWritten();
    for (size_t i = 0; i < parameters_.size(); ++i) {
      SLIMPS_ASSIGN_OR_RETURN(BackupModel::ReadLease lease,
                              backup_->AcquireRead(i, iteration_, Deadline()));
      const std::span<const float> weights = lease.weights();
      // A copy to a GPU holds the lease, and the lease needs the model.
      Write(i, weights,
            gpus_[i] == nullptr ? nullptr : std::make_shared<HeldLease>(backup_, std::move(lease)));
    }
    return absl::OkStatus();
  }

  void OnGradient(size_t index, std::span<const float> gradient, const Place& place) override {
    pusher_.OnGradient(index, gradient, place);
  }

  absl::Status OnRows(size_t index, std::span<const int64_t> /*rows*/,
                      std::span<const float> /*values*/, const Place& /*place*/) override {
    return absl::UnimplementedError(
        absl::StrCat("gradient of key ", pusher_.key(index).typed_name(),
                     ": expected a whole gradient, since the backup model's local step needs it, "
                     "got rows"));
  }

  bool IsRead(size_t index) const override { return pusher_.IsRead(index); }

  absl::Status EndStep() override {
    SLIMPS_RETURN_IF_ERROR(pusher_.EndRound());
    SLIMPS_RETURN_IF_ERROR(AwaitWritten());  // mostly long over: backward came after it
    Round next{.first_push = pusher_.first_push(),
               .arrivals = std::make_shared<RoundArrivals>(parameters_.size(), options_.clock)};
    absl::Duration waited;
    for (size_t i = 0; i < parameters_.size(); ++i) {
      const SteadyTime start = options_.clock->Now();
      {
        const Activity::Call noted(store_->activity(), "EndStep");
        SLIMPS_RETURN_IF_ERROR(backup_->WaitGlobal(i, iteration_ - 1, Deadline()));
      }
      const SteadyTime arrived = options_.clock->Now();
      waited += arrived - start;
      const TraceSubject subject{pusher_.key(i).typed_name(), 0, static_cast<uint64_t>(iteration_)};
      TraceLog::Global().AddOfThread(TraceStage::kWait, subject, start, arrived);
      SLIMPS_RETURN_IF_ERROR(
          backup_->FinishIteration(i, iteration_, Scaled(pusher_.pushed(i)), Deadline()));
      pusher_.Release(i);
      times_.local_update += options_.clock->Now() - arrived;
      TraceLog::Global().AddOfThread(TraceStage::kLocalUpdate, subject, arrived,
                                     options_.clock->Now());
      SLIMPS_RETURN_IF_ERROR(StartPull(i, next.arrivals));
    }
    CloseRound(waited);
    under_way_ = std::move(next);
    finished_ = iteration_;
    // Either this step's pulls or the next step's pushes are measured, with nothing else on the
    // link. So this step's pulls must end first.
    if (!pusher_.measuring() && !store_->measuring()) return absl::OkStatus();
    const TraceSpan span(TraceStage::kWait, {"", 0, static_cast<uint64_t>(iteration_)});
    const SteadyTime start = options_.clock->Now();
    const absl::Status arrived = under_way_.arrivals->Wait(Deadline());
    under_way_.waited = options_.clock->Now() - start;
    return arrived;
  }

  absl::Status SetHyper(size_t index, const Hyper& hyper) override {
    SLIMPS_RETURN_IF_ERROR(store_->SetHyper(pusher_.key(index), hyper));
    Hyper local = hyper;
    // The local step may have a codec's momentum, which is not the optimizer's to change.
    if (UpdateStateTensors(UpdateOptionsOf(optimizer_)) == 0) local.momentum.reset();
    return backup_->SetHyper(index, local);
  }

  absl::Status SetClipNorm(double norm) override { return pusher_.SetClipNorm(norm); }
  const Clipping& clipping() const override { return pusher_.clipping(); }

  absl::Status Drain() override {
    SLIMPS_RETURN_IF_ERROR(pusher_.AwaitNorm());
    const TraceSpan span(TraceStage::kWait, {"", 0, static_cast<uint64_t>(finished_)});
    const Activity::Call noted(store_->activity(), "Drain");
    const SteadyTime start = options_.clock->Now();
    SLIMPS_RETURN_IF_ERROR(backup_->Drain(finished_, Deadline()));
    CloseRound(options_.clock->Now() - start);
    under_way_ = Round();
    written_ = MakeWritten();
    for (size_t i = 0; i < parameters_.size(); ++i) Write(i, backup_->Global(i), backup_);
    SLIMPS_RETURN_IF_ERROR(AwaitWritten());
    return store_->Wait();
  }

  absl::Status Save(const std::string& folder) override {
    return store_->Save(folder, backup_->Save(finished_, Deadline()));
  }

  size_t steps() const override { return static_cast<size_t>(finished_); }
  ExchangeTimes times() const override { return times_; }

 private:
  // A round whose weights are being pulled while the next step computes.
  struct Round {
    SteadyTime first_push = SteadyTime::InfiniteFuture();
    std::shared_ptr<RoundArrivals> arrivals;
    absl::Duration waited = {};  // the wait before the next step began
  };

  // A lease, with the model that it needs.
  struct HeldLease {
    HeldLease(std::shared_ptr<BackupModel> backup, BackupModel::ReadLease held)
        : model(std::move(backup)), lease(std::move(held)) {}
    const std::shared_ptr<BackupModel> model;
    const BackupModel::ReadLease lease;  // declared last, so that it ends first
  };

  // Returns a count of the parameters that lie on GPUs.
  std::shared_ptr<RoundArrivals> MakeWritten() const {
    const auto on_host = std::ranges::count(gpus_, static_cast<Device*>(nullptr));
    return std::make_shared<RoundArrivals>(gpus_.size() - static_cast<size_t>(on_host),
                                           options_.clock);
  }

  // Waits until GPUs have what was last written to them.
  absl::Status AwaitWritten() {
    return Prefixed(written_->Wait(Deadline()), "copying weights to a GPU");
  }

  // Writes weights into a parameter: at once or, on a GPU, before what its stream is given from now
  // on. Then the copy keeps `owner`, and counts as written at its end.
  void Write(size_t index, std::span<const float> weights, std::shared_ptr<const void> owner) {
    const Parameter& parameter = parameters_[index];
    if (gpus_[index] == nullptr) {
      std::ranges::copy(weights, parameter.values.begin());
      return;
    }
    gpus_[index]->CopyToDevice(
        pusher_.key(index).id(), weights, parameter.values, parameter.place.stream,
        [written = written_, owner = std::move(owner)](KeyId, const absl::Status& copied) mutable {
          owner.reset();  // who waits may then write to the source
          written->Arrived(copied);
        });
  }

  SteadyTime Deadline() const { return options_.clock->Now() + options_.timeout; }

  // Returns the gradient as the newest known mean gradient was scaled. Valid until the next call.
  std::span<const float> Scaled(std::span<const float> gradient) {
    const double scale = pusher_.clipping().newest.scale;
    if (scale == 0 || scale == 1) return gradient;  // 0: a skipped step says nothing of this one
    scaled_.resize(gradient.size());
    std::ranges::transform(gradient, scaled_.begin(),
                           [scale](float value) { return static_cast<float>(value * scale); });
    return scaled_;
  }

  // Starts the pull of version `iteration_` into glo_buf, which FinishIteration has just freed.
  absl::Status StartPull(size_t tensor, const std::shared_ptr<RoundArrivals>& arrivals) {
    SLIMPS_ASSIGN_OR_RETURN(const std::span<float> glo_buf,
                            backup_->BeginGlobalWrite(tensor, iteration_));
    // The callback shares ownership of the model: a pull may outlive this exchange when training
    // stops early.
    auto arrived = [backup = backup_, tensor, version = iteration_, arrivals](absl::Status status) {
      arrivals->Arrived(status);
      if (status.ok()) status = backup->CommitGlobal(tensor, version);
      if (!status.ok()) backup->FailAll(status);
    };
    store_->PullOnto(pusher_.key(tensor), glo_buf, PriorityOf(tensor), std::move(arrived));
    return absl::OkStatus();
  }

  // Adds up the times of the round under way, which has arrived. This step waited `waited` for it.
  void CloseRound(absl::Duration waited) {
    waited += under_way_.waited;
    times_.wait += waited;
    if (under_way_.arrivals == nullptr) return;
    times_.overlap += OverlapOf(under_way_.first_push, under_way_.arrivals->last_arrival(), waited);
  }

  KVStore* const store_;
  const std::span<const Parameter> parameters_;
  const std::vector<Device*> gpus_;
  const ExchangeOptions options_;
  GradientPusher pusher_;
  const std::shared_ptr<BackupModel> backup_;
  const wire::OptimizerSpec optimizer_;  // the servers'
  std::vector<float> scaled_;            // Scaled's
  int64_t iteration_ = 0;                // the iteration that was begun last
  int64_t finished_ = 0;
  Round under_way_;
  // To GPUs, by the newest BeginStep or Drain.
  std::shared_ptr<RoundArrivals> written_ =
      std::make_shared<RoundArrivals>(size_t{0}, options_.clock);
  ExchangeTimes times_;
};

absl::StatusOr<BackupBuffer> MakePinned(Device* gpu, size_t elements) {
  SLIMPS_ASSIGN_OR_RETURN(std::unique_ptr<HostBuffer> made, gpu->KeepHost(elements));
  std::shared_ptr<HostBuffer> owner = std::move(made);
  const std::span<float> floats = owner->floats();
  return BackupBuffer{.floats = floats, .owner = std::move(owner)};
}

// Returns a tensor of the parameter's present values. The buffers of one on a GPU are pinned.
absl::StatusOr<BackupTensor> MakeTensor(const Parameter& parameter, Device* gpu) {
  if (gpu == nullptr) return BackupTensor{.name = parameter.name, .initial = parameter.values};
  BackupTensor tensor{.name = parameter.name, .initial = {}};
  SLIMPS_ASSIGN_OR_RETURN(tensor.glo_buf, MakePinned(gpu, parameter.values.size()));
  SLIMPS_ASSIGN_OR_RETURN(tensor.loc_buf, MakePinned(gpu, parameter.values.size()));
  tensor.initial = tensor.glo_buf.floats;
  Awaited copied;
  gpu->CopyToHost(/*key=*/0, parameter.values, parameter.place.stream, tensor.glo_buf.floats,
                  [done = copied.Callback()](KeyId, absl::Status status) { done(status); });
  SLIMPS_RETURN_IF_ERROR(copied.Await());
  return tensor;
}

}  // namespace

absl::StatusOr<std::unique_ptr<WeightExchange>> MakeBackupExchange(
    KVStore* store, std::span<const Parameter> parameters, const ExchangeOptions& options,
    const wire::OptimizerSpec& optimizer, const LoadedCheckpoint& resumed) {
  if (store->type() == "dist_async" || store->type() == "dist_ssp") {
    return absl::InvalidArgumentError(
        absl::StrCat("the backup model needs dist_sync: it merges the weights of one round, and ",
                     store->type(), " has no rounds in common"));
  }
  std::vector<BackupTensor> tensors;
  std::vector<Device*> gpus;
  for (const Parameter& parameter : parameters) {
    const std::string what = absl::StrCat("parameter ", parameter.name);
    Device*& gpu = gpus.emplace_back(nullptr);
    if (!parameter.place.on_host()) {
      const auto found = FindDevice(store->devices(), parameter.values, parameter.place);
      SLIMPS_RETURN_IF_ERROR(Prefixed(found.status(), what));
      gpu = *found;
    }
    absl::StatusOr<BackupTensor> tensor = MakeTensor(parameter, gpu);
    SLIMPS_RETURN_IF_ERROR(Prefixed(tensor.status(), what));
    tensors.push_back(*std::move(tensor));
  }
  BackupModelOptions backup = *options.backup;
  backup.clock = options.clock;
  SLIMPS_ASSIGN_OR_RETURN(std::unique_ptr<BackupModel> model,
                          BackupModel::Create(std::move(backup), tensors));
  const auto finished = static_cast<int64_t>(resumed.rounds);
  if (finished > 0) SLIMPS_RETURN_IF_ERROR(model->Restore(finished, resumed.own_state));
  return std::make_unique<BackupExchange>(store, parameters, std::move(gpus), options,
                                          std::move(model), optimizer, finished);
}

}  // namespace slimps
