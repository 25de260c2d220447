// SPDX-License-Identifier: Apache-2.0
#include "worker/exchange/weight_exchange.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "compress/kernels/update_plan.h"
#include "proto/base/awaited.h"
#include "proto/base/buffer.h"
#include "proto/base/status_copy.h"
#include "proto/base/status_macros.h"
#include "proto/base/trace/trace.h"
#include "proto/learning_rate.h"
#include "worker/activity.h"
#include "worker/device/host_values.h"

namespace slimps {

WeightExchange::WeightExchange(KVStore* store, std::span<const Parameter> parameters,
                               std::vector<NextTensor> tensors, const ExchangeOptions& options,
                               std::shared_ptr<BackupModel> backup,
                               const wire::OptimizerSpec& optimizer, int64_t finished)
    : store_(store),
      parameters_(parameters),
      options_(options),
      backup_(std::move(backup)),
      optimizer_(optimizer),
      next_(std::make_shared<NextWeights>(store, std::move(tensors), backup_, finished,
                                          options.clock)),
      iteration_(finished),
      finished_(finished),
      is_written_(backup_ == nullptr),
      pusher_(store, parameters,
              {.non_finite = options.non_finite,
               .lend = true,
               .timeout = options.timeout,
               .clock = options.clock}),
      gradients_(parameters.size()),
      copies_(
          parameters.size(),
          [this](size_t index, absl::StatusOr<HostCopies::Copy> copy) {
            if (copy.ok()) return Push(index, {(*copy)->floats(), *copy}, Place());
            MutexLock lock(&mutex_);
            pusher_.Fail(Prefixed(
                copy.status(), absl::StrCat("gradient of key ", pusher_.key(index).typed_name())));
          },
          options.clock) {
  next_->Start();
}

WeightExchange::~WeightExchange() { next_->Stop(); }

absl::Status WeightExchange::BeginStep() {
  SLIMPS_RETURN_IF_ERROR(next_->status());
  ++iteration_;
  if (backup_ != nullptr) {
    backup_->set_learning_rate(
        LearningRateAt(options_.backup->updater.learning_rate, optimizer_.schedule(),
                       store_->former_rounds() + static_cast<uint64_t>(iteration_)));
  }
  if (!is_written_) {
    next_->Rewrite();
    SLIMPS_RETURN_IF_ERROR(next_->AwaitWritten(Deadline()));
  }
  next_->Begin(iteration_);
  copies_.BeginStep();
  MutexLock lock(&mutex_);
  pusher_.BeginRound();
  has_gone_on_ = false;
  // A measured round's pulls come after its pushes. The scale of a clipped local step is known
  // when the round before has ended.
  early_ = !pusher_.measuring() && pusher_.clip_norm() == 0;
  return absl::OkStatus();
}

void WeightExchange::OnGradient(size_t index, std::span<const float> gradient, const Place& place) {
  if (place.on_host() || !options_.copies_from_gpus()) return Push(index, {gradient}, place);
  absl::StatusOr<Device*> device = FindDevice(store_->devices(), gradient, place);
  absl::Status started = device.status();
  if (started.ok()) started = copies_.Start(index, *device, gradient, place);
  if (started.ok()) return;
  MutexLock lock(&mutex_);
  pusher_.Fail(
      Prefixed(started, absl::StrCat("gradient of key ", pusher_.key(index).typed_name())));
}

void WeightExchange::Push(size_t index, OwnedGradient gradient, const Place& place) {
  MutexLock lock(&mutex_);
  const bool pushed = pusher_.OnGradient(index, gradient.values, place, gradient.owner);
  // Weights that nobody has awaited may still be written from what the next pull changes.
  if (pushed && early_ && HasWeights(index)) {
    has_gone_on_ = true;
    next_->Pushed(index, backup_ == nullptr ? OwnedGradient() : std::move(gradient));
  } else if (backup_ != nullptr) {
    gradients_[index] = std::move(gradient);
  }
}

absl::Status WeightExchange::OnRows(size_t index, std::span<const int64_t> rows,
                                    std::span<const float> values, const Place& place) {
  MutexLock lock(&mutex_);
  if (backup_ != nullptr) {
    return absl::UnimplementedError(
        absl::StrCat("gradient of key ", pusher_.key(index).typed_name(),
                     ": expected a whole gradient, since the backup model's local step needs it, "
                     "got rows"));
  }
  pusher_.OnRows(index, rows, values, place);
  if (!place.on_host()) copies_.NoteRead(index);  // pusher_ has waited for its copy
  if (early_ && HasWeights(index) && pusher_.contributed(index)) next_->Pushed(index);
  return absl::OkStatus();
}

bool WeightExchange::IsRead(size_t index) const {
  if (copies_.IsRead(index)) return true;
  if (options_.copies_from_gpus()) return false;  // a local step may read what is lent
  MutexLock lock(&mutex_);
  return pusher_.IsRead(index);
}

absl::Status WeightExchange::EndStep() {
  absl::Status ended;
  const auto give_back = [&]() -> absl::Status {
    {
      MutexLock lock(&mutex_);
      for (OwnedGradient& gradient : gradients_) gradient = {};
    }
    return AwaitLoans();
  };
  try {
    ended = ExchangeRound();
  } catch (...) {
    next_->Fail(absl::InternalError("the step was ended by an exception"));
    (void)give_back();  // the caller takes the gradients back
    throw;
  }
  // A local step that was not made leaves no weights to go on with.
  if (finished_ != iteration_ && backup_ != nullptr) next_->Fail(ended);
  // Mostly long over: weights come after their gradients.
  const absl::Status given_back = give_back();
  return given_back.ok() ? ended : given_back;
}

absl::Status WeightExchange::ExchangeRound() {
  if (absl::Status taken = copies_.AwaitTaken(Deadline()); !taken.ok()) {
    next_->Fail(taken);  // what comes later belongs to this step
    return taken;
  }
  SLIMPS_RETURN_IF_ERROR(AwaitForward());
  SLIMPS_RETURN_IF_ERROR(next_->AwaitCopied(Deadline()));  // mostly long over: backward came after
  bool measuring = false;
  SteadyTime first_push;
  {
    MutexLock lock(&mutex_);
    SLIMPS_RETURN_IF_ERROR(pusher_.EndRound());
    const double scale = LocalScale();
    for (size_t i = 0; i < parameters_.size(); ++i) {
      if (next_->WasPushed(i)) continue;
      const bool steps = backup_ != nullptr && pusher_.contributed(i);
      next_->Pushed(i, steps ? std::move(gradients_[i]) : OwnedGradient(), scale);
    }
    measuring = pusher_.measuring();
    first_push = pusher_.first_push();
  }
  // A local step by a gradient that is not finite is not shown.
  if (backup_ != nullptr) SLIMPS_RETURN_IF_ERROR(AwaitLoans());
  next_->Publish();
  former_push_ = std::exchange(newest_push_, first_push);
  if (backup_ != nullptr || !options_.overlap_forward) {
    const absl::Status ready = Await("EndStep", [&](SteadyTime deadline) {
      return options_.overlap_forward ? next_->AwaitMade(deadline) : next_->AwaitWritten(deadline);
    });
    if (!ready.ok()) next_->Fail(ready);  // no parameter is written any more
    SLIMPS_RETURN_IF_ERROR(ready);
    backup_ == nullptr ? NoteOverlap(newest_push_, iteration_)
                       : NoteOverlap(former_push_, iteration_ - 1);
  }
  is_written_ = true;
  finished_ = iteration_;
  // Either this step's pulls or the next step's pushes are measured, with nothing else on the link.
  // So this step's pulls must end first.
  if (measuring || store_->measuring()) SLIMPS_RETURN_IF_ERROR(next_->AwaitArrived(Deadline()));
  if (backup_ != nullptr || options_.overlap_forward) return absl::OkStatus();
  MutexLock lock(&mutex_);
  return pusher_.AwaitNorm();  // another worker may have heard it first
}

absl::Status WeightExchange::Await(const char* call,
                                   absl::FunctionRef<absl::Status(SteadyTime deadline)> wait) {
  const TraceSpan span(TraceStage::kWait, {"", 0, static_cast<uint64_t>(iteration_)});
  const Activity::Call noted(store_->activity(), call);
  const SteadyTime start = options_.clock->Now();
  const absl::Status awaited = wait(start + options_.timeout);
  const absl::Duration waited = options_.clock->Now() - start;
  times_.wait += waited;
  waited_ += waited;
  return awaited;
}

absl::Status WeightExchange::AwaitForward() {
  if (!options_.overlap_forward) return absl::OkStatus();
  SLIMPS_RETURN_IF_ERROR(
      Await("EndStep", [&](SteadyTime deadline) { return next_->AwaitWritten(deadline); }));
  if (backup_ == nullptr) {
    NoteOverlap(std::exchange(newest_push_, SteadyTime::InfiniteFuture()), finished_);
  }
  return absl::OkStatus();
}

void WeightExchange::NoteOverlap(SteadyTime first_push, int64_t version) {
  const SteadyTime last_arrival = next_->last_arrival(version);
  const absl::Duration waited = std::exchange(waited_, absl::ZeroDuration());
  if (first_push == SteadyTime::InfiniteFuture() || last_arrival <= first_push) return;
  times_.overlap += std::max(absl::ZeroDuration(), last_arrival - first_push - waited);
}

absl::Status WeightExchange::AwaitWeights(size_t index) {
  if (!options_.overlap_forward) return absl::OkStatus();
  return Await("EndStep",
               [&](SteadyTime deadline) { return next_->AwaitWritten(index, deadline); });
}

absl::Status WeightExchange::SetMemory(size_t index, std::span<float> values) {
  const Parameter& parameter = parameters_[index];
  if (!parameter.spare || values.size() != parameter.values.size()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "parameter ", parameter.name, ": memory of ", values.size(), " elements; expected ",
        parameter.spare ? absl::StrCat(parameter.values.size()) : "a parameter with spare memory"));
  }
  if (finished_ != iteration_ && next_->WasPushed(index)) {
    return absl::FailedPreconditionError(
        absl::StrCat("parameter ", parameter.name,
                     ": its gradient of this step has gone out; expected its memory before that"));
  }
  next_->SetMemory(index, values);
  return absl::OkStatus();
}

absl::Status WeightExchange::AwaitLoans() {
  MutexLock lock(&mutex_);
  return pusher_.AwaitLoans();
}

double WeightExchange::LocalScale() const {
  const double scale = pusher_.clipping().newest.scale;
  return scale == 0 ? 1 : scale;  // a skipped step says nothing of this one
}

absl::Status WeightExchange::SetHyper(size_t index, const Hyper& hyper) {
  SLIMPS_RETURN_IF_ERROR(store_->SetHyper(parameters_[index].name, hyper));
  if (backup_ == nullptr) return absl::OkStatus();
  Hyper local = hyper;
  // The local step may have a codec's momentum, which is not the optimizer's to change.
  if (UpdateStateTensors(UpdateOptionsOf(optimizer_)) == 0) local.momentum.reset();
  return backup_->SetHyper(index, local);
}

absl::Status WeightExchange::SetClipNorm(double norm) {
  MutexLock lock(&mutex_);
  SLIMPS_RETURN_IF_ERROR(pusher_.SetClipNorm(norm));
  early_ = !pusher_.measuring() && norm == 0;
  return absl::OkStatus();
}

Clipping WeightExchange::clipping() const {
  MutexLock lock(&mutex_);
  return pusher_.clipping();
}

absl::Status WeightExchange::Drain() {
  SLIMPS_RETURN_IF_ERROR(AwaitForward());
  {
    MutexLock lock(&mutex_);
    if (backup_ != nullptr && has_gone_on_ && finished_ != iteration_) {
      return absl::FailedPreconditionError(
          "gradients of a step have gone out; expected the step's end before the weights are asked "
          "for");
    }
    SLIMPS_RETURN_IF_ERROR(pusher_.AwaitNorm());
  }
  if (backup_ == nullptr) return store_->Wait();
  SLIMPS_RETURN_IF_ERROR(
      Await("Drain", [&](SteadyTime deadline) { return backup_->Drain(finished_, deadline); }));
  NoteOverlap(std::exchange(newest_push_, SteadyTime::InfiniteFuture()), finished_);
  is_written_ = false;
  SLIMPS_RETURN_IF_ERROR(next_->AwaitCopied(Deadline()));
  for (size_t i = 0; i < parameters_.size(); ++i) next_->WriteGlobal(i);
  SLIMPS_RETURN_IF_ERROR(next_->AwaitCopied(Deadline()));
  return store_->Wait();
}

absl::Status WeightExchange::Save(const std::string& folder) {
  if (backup_ == nullptr) return store_->Save(folder);
  return store_->Save(folder, backup_->Save(finished_, Deadline()));
}

size_t WeightExchange::steps() const { return static_cast<size_t>(finished_); }

ExchangeTimes WeightExchange::times() const {
  ExchangeTimes times = times_;
  times.local_update = next_->local_update();
  return times;
}

// ---- making one ---------------------------------------------------------------------------------

namespace {

absl::StatusOr<BackupBuffer> MakePinned(Device* gpu, size_t elements) {
  SLIMPS_ASSIGN_OR_RETURN(std::unique_ptr<HostBuffer> made, gpu->KeepHost(elements));
  std::shared_ptr<HostBuffer> owner = std::move(made);
  const std::span<float> floats = owner->floats();
  return BackupBuffer{.floats = floats, .owner = std::move(owner)};
}

BackupBuffer MakeOnHost(size_t elements) {
  auto owner = std::make_shared<AlignedBuffer>(AlignedBuffer::OfFloats(elements));
  const std::span<float> floats = owner->floats();
  return BackupBuffer{.floats = floats, .owner = std::move(owner)};
}

// Returns a tensor of the parameter's present values. The buffers of one on a GPU are pinned.
absl::StatusOr<BackupTensor> MakeBackupTensor(const Parameter& parameter, Device* gpu) {
  if (gpu == nullptr) {
    BackupTensor tensor{.name = parameter.name, .initial = parameter.values};
    if (parameter.spare) tensor.loc_buf = {.floats = parameter.values};
    return tensor;
  }
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

absl::Status CheckTakesBackup(const KVStore& store) {
  if (store.type() != "dist_async" && store.type() != "dist_ssp") return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("the backup model needs dist_sync: it merges the weights of one round, and ",
                   store.type(), " has no rounds in common"));
}

}  // namespace

absl::StatusOr<std::unique_ptr<WeightExchange>> MakeExchange(KVStore* store,
                                                             std::span<const Parameter> parameters,
                                                             const ExchangeOptions& options,
                                                             const wire::OptimizerSpec& optimizer,
                                                             const LoadedCheckpoint& resumed) {
  if (options.backup.has_value()) SLIMPS_RETURN_IF_ERROR(CheckTakesBackup(*store));
  std::vector<NextTensor> tensors;
  std::vector<BackupTensor> backups;
  for (const Parameter& parameter : parameters) {
    const std::string what = absl::StrCat("parameter ", parameter.name);
    NextTensor& tensor = tensors.emplace_back(NextTensor{.key = parameter.name,
                                                         .values = parameter.values,
                                                         .spare = parameter.spare,
                                                         .place = parameter.place});
    if (!parameter.place.on_host()) {
      const auto found = FindDevice(store->devices(), parameter.values, parameter.place);
      SLIMPS_RETURN_IF_ERROR(Prefixed(found.status(), what));
      tensor.gpu = *found;
    }
    if (tensor.spare && tensor.gpu != nullptr) {
      return absl::InvalidArgumentError(
          absl::StrCat(what, ": has spare memory; expected that on the host alone"));
    }
    if (options.backup.has_value()) {
      absl::StatusOr<BackupTensor> backup = MakeBackupTensor(parameter, tensor.gpu);
      SLIMPS_RETURN_IF_ERROR(Prefixed(backup.status(), what));
      backups.push_back(*std::move(backup));
    } else if (tensor.gpu == nullptr) {
      tensor.glo_buf = MakeOnHost(parameter.values.size());
    } else {
      absl::StatusOr<BackupBuffer> pinned = MakePinned(tensor.gpu, parameter.values.size());
      SLIMPS_RETURN_IF_ERROR(Prefixed(pinned.status(), what));
      tensor.glo_buf = *std::move(pinned);
    }
  }
  const auto finished = static_cast<int64_t>(resumed.rounds);
  std::shared_ptr<BackupModel> model;
  if (options.backup.has_value()) {
    BackupModelOptions backup = *options.backup;
    backup.clock = options.clock;
    SLIMPS_ASSIGN_OR_RETURN(model, BackupModel::Create(std::move(backup), backups));
    if (finished > 0) SLIMPS_RETURN_IF_ERROR(model->Restore(finished, resumed.own_state));
  }
  // Its constructor is this function's alone.
  return std::unique_ptr<WeightExchange>(new WeightExchange(
      store, parameters, std::move(tensors), options, std::move(model), optimizer, finished));
}

}  // namespace slimps
