// SPDX-License-Identifier: Apache-2.0
#include "tools/bench/cluster/training_loop.h"

#include <algorithm>
#include <string>
#include <vector>

#include "proto/base/clock.h"
#include "proto/base/hash.h"
#include "proto/base/status_macros.h"
#include "tools/bench/cluster/loop_base.h"

namespace slimps {
namespace {

constexpr double kLearningRate = 1e-3;

wire::OptimizerSpec Sgd() {
  wire::OptimizerSpec spec;
  spec.set_kind(wire::OptimizerSpec::SGD);
  spec.set_learning_rate(kLearningRate);
  spec.set_average(true);
  return spec;
}

}  // namespace

LoopBase::LoopBase(KVStore* store, const ModelShape& model, const TrainingLoopOptions& options)
    : store_(store),
      model_(model),
      options_(options),
      layers_(PlanLayers(model, options.compute)),
      gradients_(model, store->rank()) {
  for (const ModelTensor& tensor : model.tensors) keys_.emplace_back(tensor.name);
}

absl::Status LoopBase::Init(std::span<const std::span<float>> initial) {
  std::vector<InitTensor> inits;
  for (size_t i = 0; i < tensors(); ++i) {
    const ModelTensor& tensor = model_.tensors[i];
    std::fill(initial[i].begin(), initial[i].end(), 0.5f);
    inits.push_back({.key = keys_[i],
                     .shape = tensor.shape,
                     .value = initial[i],
                     .layer = static_cast<wire::LayerKind>(tensor.layer)});
  }
  SLIMPS_RETURN_IF_ERROR(store_->Init(inits));
  SLIMPS_RETURN_IF_ERROR(store_->SetOptimizer(Sgd()));
  SLIMPS_RETURN_IF_ERROR(store_->Barrier());
  for (size_t i = 0; i < tensors(); ++i) {
    SLIMPS_RETURN_IF_ERROR(store_->Pull(keys_[i], initial[i], PriorityOf(i)));
  }
  return absl::OkStatus();
}

absl::Status LoopBase::Push(size_t tensor, int64_t iteration) {
  return store_->Push(keys_[tensor], Gradient(tensor, iteration), PriorityOf(tensor));
}

void LoopBase::EncodeOnDevice(size_t tensor) {
  if (options_.device_encode_per_element <= absl::ZeroDuration()) return;
  if (elements(tensor) * sizeof(float) < options_.device_threshold_bytes) return;
  accelerator_.Encode(options_.device_encode_per_element * elements(tensor));
}

absl::Status LoopBase::Iterate(int64_t iteration) {
  for (const Layer& layer : layers_) {
    SteadyTime arrived = SteadyTime::InfinitePast();
    for (size_t i = layer.first; i < layer.first + layer.tensors; ++i) {
      SLIMPS_ASSIGN_OR_RETURN(const SteadyTime at, AwaitWeights(i, iteration));
      arrived = std::max(arrived, at);
    }
    accelerator_.Compute(layer.forward, arrived);
  }
  // Other traffic must not disturb measured pushes. So they wait until backward has ended and the
  // previous round's weights have arrived, and nothing is pulled before the last push was
  // acknowledged.
  const bool measuring = store_->measuring();
  std::vector<size_t> held_back;
  for (size_t l = layers_.size(); l-- > 0;) {
    const Layer& layer = layers_[l];
    accelerator_.Compute(layer.backward, SteadyTime::InfinitePast());
    for (size_t i = layer.first + layer.tensors; i-- > layer.first;) {
      EncodeOnDevice(i);
      if (measuring) {
        held_back.push_back(i);
        continue;
      }
      SLIMPS_RETURN_IF_ERROR(Push(i, iteration));
      SLIMPS_RETURN_IF_ERROR(AfterPush(i, iteration));
    }
  }
  if (!measuring) return absl::OkStatus();
  SLIMPS_RETURN_IF_ERROR(AwaitAll(iteration - 1));
  for (const size_t i : held_back) SLIMPS_RETURN_IF_ERROR(Push(i, iteration));
  SLIMPS_RETURN_IF_ERROR(store_->Wait());
  for (const size_t i : held_back) SLIMPS_RETURN_IF_ERROR(AfterPush(i, iteration));
  return AwaitAll(iteration);
}

uint64_t LoopBase::HashOf(uint64_t so_far, std::span<const float> weights) {
  return so_far * 0x9E3779B97F4A7C15u + HashBytes(std::as_bytes(weights));
}

absl::StatusOr<std::unique_ptr<TrainingLoop>> MakeTrainingLoop(KVStore* store,
                                                               const ModelShape& model,
                                                               const TrainingLoopOptions& options) {
  return options.backup_model ? MakeBackupLoop(store, model, options)
                              : MakeWaitingLoop(store, model, options);
}

}  // namespace slimps
