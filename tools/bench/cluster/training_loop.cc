// SPDX-License-Identifier: Apache-2.0
#include "tools/bench/cluster/training_loop.h"

#include <algorithm>
#include <span>
#include <utility>

#include "proto/base/clock.h"
#include "proto/base/hash.h"
#include "proto/base/status_macros.h"

namespace slimps {
namespace {

constexpr double kLearningRate = 1e-3;
constexpr float kFirstWeight = 0.5f;

wire::OptimizerSpec Sgd() {
  wire::OptimizerSpec spec;
  spec.set_kind(wire::OptimizerSpec::SGD);
  spec.set_learning_rate(kLearningRate);
  spec.set_rescale_grad(1);
  spec.set_average(true);
  return spec;
}

}  // namespace

TrainingLoop::TrainingLoop(KVStore* store, const ModelShape& model,
                           const TrainingLoopOptions& options)
    : store_(store),
      options_(options),
      layers_(PlanLayers(model, options.compute)),
      gradients_(model, store->rank()) {
  for (const ModelTensor& tensor : model.tensors) {
    weights_.push_back(AlignedBuffer::OfFloats(tensor.elements()));
    AlignedBuffer& spare = spare_.emplace_back(AlignedBuffer::OfFloats(tensor.elements()));
    std::ranges::fill(spare.floats(), kFirstWeight);
    parameters_.push_back({.name = tensor.name,
                           .shape = tensor.shape,
                           .layer = static_cast<wire::LayerKind>(tensor.layer),
                           .values = spare.floats(),
                           .spare = true});
  }
}

absl::StatusOr<std::unique_ptr<TrainingLoop>> TrainingLoop::Start(
    KVStore* store, const ModelShape& model, const TrainingLoopOptions& options) {
  std::unique_ptr<TrainingLoop> loop(new TrainingLoop(store, model, options));
  ExchangeOptions exchange{.timeout = options.timeout, .overlap_forward = options.overlap_forward};
  if (options.backup_model) exchange.backup = MirroringBackup();
  SLIMPS_ASSIGN_OR_RETURN(loop->exchange_,
                          StartExchange(store, loop->parameters_, Sgd(), exchange));
  return loop;
}

void TrainingLoop::EncodeOnDevice(size_t tensor) {
  const size_t elements = parameters_[tensor].values.size();
  if (options_.device_encode_per_element <= absl::ZeroDuration()) return;
  if (elements * sizeof(float) < options_.device_threshold_bytes) return;
  accelerator_.Encode(options_.device_encode_per_element * elements);
}

absl::Status TrainingLoop::Iterate(int64_t iteration) {
  SLIMPS_RETURN_IF_ERROR(exchange_->BeginStep());
  if (!options_.overlap_forward) SLIMPS_RETURN_IF_ERROR(ExchangeAll());
  SteadyTime ready = MachineClock()->Now();
  for (const Layer& layer : layers_) {
    for (size_t i = layer.first; i < layer.first + layer.tensors; ++i) {
      if (!options_.overlap_forward) continue;
      SLIMPS_RETURN_IF_ERROR(exchange_->AwaitWeights(i));
      SLIMPS_RETURN_IF_ERROR(Exchange(i));
    }
    if (options_.overlap_forward) ready = MachineClock()->Now();
    accelerator_.Compute(layer.forward, ready);
  }
  for (size_t l = layers_.size(); l-- > 0;) {
    const Layer& layer = layers_[l];
    accelerator_.Compute(layer.backward, SteadyTime::InfinitePast());
    for (size_t i = layer.first + layer.tensors; i-- > layer.first;) {
      EncodeOnDevice(i);
      exchange_->OnGradient(i, gradients_.Of(i, static_cast<uint64_t>(iteration)));
    }
  }
  return exchange_->EndStep();
}

absl::Status TrainingLoop::Finish() {
  SLIMPS_RETURN_IF_ERROR(exchange_->Drain());
  return ExchangeAll();
}

absl::Status TrainingLoop::Exchange(size_t tensor) {
  std::swap(weights_[tensor], spare_[tensor]);
  return exchange_->SetMemory(tensor, spare_[tensor].floats());
}

absl::Status TrainingLoop::ExchangeAll() {
  for (size_t i = 0; i < weights_.size(); ++i) SLIMPS_RETURN_IF_ERROR(Exchange(i));
  return absl::OkStatus();
}

uint64_t TrainingLoop::WeightsHash() const {
  uint64_t hash = 0;
  for (const AlignedBuffer& weights : weights_) {
    hash = hash * 0x9E3779B97F4A7C15u + HashBytes(weights.bytes());
  }
  return hash;
}

}  // namespace slimps
