// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <optional>

#include "absl/strings/str_cat.h"
#include "compress/codec/codec.h"
#include "proto/base/awaited.h"
#include "proto/base/status_macros.h"
#include "worker/collective_optimizer.h"
#include "worker/combination.h"
#include "worker/exchange/weight_exchange.h"
#include "worker/local/local_rule.h"

namespace slimps {

namespace {

absl::Status CheckCanTrain(const KVStore& store, const wire::OptimizerSpec& optimizer,
                           const ExchangeOptions& options) {
  SLIMPS_RETURN_IF_ERROR(
      CheckCombination({.mode = FindStoreMode(store.type()).value_or(wire::DIST_SYNC),
                        .optimizer = optimizer,
                        .backup_model = options.backup.has_value()}));
  if (options.clip_norm != 0) {
    SLIMPS_RETURN_IF_ERROR(CheckClipping(store.type(), optimizer, store.push_treatment().codec));
  }
  if (optimizer.kind() != wire::OptimizerSpec::NONE) return absl::OkStatus();
  return absl::InvalidArgumentError(
      "training without a server optimizer: expected one; the store would hold sums of gradients, "
      "and a model would compute on those instead of weights");
}

// Waiting for weights gets so much longer than the store's timeout: the store's error says more
// than "not in time".
constexpr absl::Duration kGrace = absl::Seconds(5);

// Loads a checkpoint, and sets `optimizer` in place of its own if their numbers differ.
absl::StatusOr<LoadedCheckpoint> Resume(const std::string& folder,
                                        const wire::OptimizerSpec& optimizer, KVStore* store) {
  SLIMPS_ASSIGN_OR_RETURN(LoadedCheckpoint loaded, store->Load(folder));
  const wire::OptimizerSpec saved = loaded.optimizer.value_or(wire::OptimizerSpec());
  if (saved.SerializeAsString() != optimizer.SerializeAsString()) {
    SLIMPS_RETURN_IF_ERROR(SetOptimizerTogether(optimizer, store));
  }
  return loaded;
}

// Waits until the parameters hold the servers' weights.
absl::Status Pull(std::span<const Parameter> parameters, KVStore* store) {
  std::vector<Awaited> pulled(parameters.size());
  for (size_t i = 0; i < parameters.size(); ++i) {
    const Parameter& parameter = parameters[i];
    store->PullTo(
        parameter.name,
        {.values = parameter.values, .place = parameter.place, .done = pulled[i].Callback()},
        PriorityOf(i));
  }
  absl::Status all;
  for (Awaited& one : pulled) all.Update(one.Await());
  return all;
}

// Ends the round that a former process of this worker has pushed last. If it was the only worker,
// nobody else does.
absl::Status ClipFormerRound(std::span<const Parameter> parameters, double max_norm,
                             KVStore* store) {
  std::vector<Key> keys;
  for (const Parameter& parameter : parameters) keys.emplace_back(parameter.name);
  ClippedNorm norm;
  Awaited clipped;
  store->ClipRound(keys, max_norm, &norm, clipped.Callback());
  return clipped.Await();
}

// Returns what `options.resume` has; nothing if the job begins anew.
absl::StatusOr<LoadedCheckpoint> InitParameters(const wire::OptimizerSpec& optimizer,
                                                std::span<const Parameter> parameters,
                                                const ExchangeOptions& options, KVStore* store) {
  std::vector<InitTensor> tensors;
  for (const Parameter& parameter : parameters) {
    tensors.push_back({.key = parameter.name,
                       .shape = parameter.shape,
                       .value = parameter.values,
                       .layer = parameter.layer,
                       .place = parameter.place});
  }
  SLIMPS_RETURN_IF_ERROR(store->Init(tensors));
  SLIMPS_RETURN_IF_ERROR(SetOptimizerTogether(optimizer, store));
  if (options.clip_norm > 0 && store->former_rounds() > 0) {
    SLIMPS_RETURN_IF_ERROR(ClipFormerRound(parameters, options.clip_norm, store));
  }
  LoadedCheckpoint resumed;
  // The servers of a job that goes on are further than its checkpoint.
  if (!options.resume.empty() && store->former_rounds() == 0) {
    SLIMPS_ASSIGN_OR_RETURN(resumed, Resume(options.resume, optimizer, store));
  }
  SLIMPS_RETURN_IF_ERROR(Pull(parameters, store));
  return resumed;
}

}  // namespace

LocalUpdaterOptions LocalStepOf(const wire::OptimizerSpec& optimizer, const KVStore& store) {
  LocalUpdaterOptions updater = UpdaterOptionsOf(optimizer);
  UpdateOptions& update = updater.update;
  // The other optimizers have no moments.
  updater.moments = update.kind == UpdateKind::kAdd ? Moments::kOwn : Moments::kServers;
  // The share of the mean gradient that this worker does not know, measured to be best
  // (docs/tuning.md). A single worker knows all of it, and needs no look-ahead.
  updater.look_ahead = 1 - 1.0 / store.num_workers();
  const PushTreatment treatment = store.push_treatment();
  if (treatment.codec != nullptr && treatment.codec->combine() == Combine::kMajority) {
    // The step becomes sign(g) * rescale_grad: all but the smallest values are scaled far over the
    // limit, then clipped to it.
    constexpr double kFarOver = 1e30;
    const double vote = std::abs(update.scale);
    update.scale = std::copysign(kFarOver, update.scale);
    update.clip = update.clip == 0 ? vote : std::min(vote, update.clip);
    return updater;
  }
  // The local step sees the gradient as backward made it, without the scale of pushes. A sum over
  // the workers is N times their mean.
  update.scale *= treatment.grad_scale;
  if (!optimizer.average()) update.scale *= store.num_workers();
  if (update.kind != UpdateKind::kSgd) return updater;
  std::optional<MomentumRule> momentum;
  if (treatment.codec != nullptr) momentum = treatment.codec->Momentum(treatment.grad_scale);
  if (!momentum.has_value()) {
    // Workers' own steps lead them away from each other. Half of them keeps plain SGD as stable as
    // it is without a round of lag (docs/tuning.md).
    if (update.momentum == 0 && store.num_workers() > 1) updater.own_weight = 0.5;
    return updater;
  }
  // The codec sends momentum, not gradients, so the weights do not show the momentum of the next
  // step.
  updater.moments = Moments::kOwn;
  updater.look_ahead = 0;
  update.momentum = momentum->mu;
  update.nesterov = momentum->mu != 0 && momentum->step != MomentumStep::kHeavyBall;
  return updater;
}

absl::StatusOr<std::unique_ptr<WeightExchange>> StartExchange(KVStore* store,
                                                              std::span<const Parameter> parameters,
                                                              const wire::OptimizerSpec& optimizer,
                                                              const ExchangeOptions& given) {
  ExchangeOptions options = given;
  if (options.timeout == absl::ZeroDuration()) options.timeout = store->timeout() + kGrace;
  SLIMPS_RETURN_IF_ERROR(CheckCanTrain(*store, optimizer, options));
  SLIMPS_ASSIGN_OR_RETURN(const LoadedCheckpoint resumed,
                          InitParameters(optimizer, parameters, options, store));
  if (options.backup.has_value() && options.backup->updater.moments == Moments::kServers) {
    LocalUpdaterOptions& updater = options.backup->updater;
    updater = LocalStepOf(optimizer, *store);
    updater.loc_lr = given.backup->updater.loc_lr;
    updater.threads = given.backup->updater.threads;
  }
  SLIMPS_ASSIGN_OR_RETURN(std::unique_ptr<WeightExchange> exchange,
                          MakeExchange(store, parameters, options, optimizer, resumed));
  if (options.clip_norm != 0) SLIMPS_RETURN_IF_ERROR(exchange->SetClipNorm(options.clip_norm));
  // No worker's first step is timed while others still wait for their first weights.
  SLIMPS_RETURN_IF_ERROR(store->Barrier());
  return exchange;
}

}  // namespace slimps
