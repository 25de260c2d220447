// SPDX-License-Identifier: Apache-2.0
#include "tools/bench/transport/tensor_set.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "proto/base/status_macros.h"
#include "tools/bench/transport/monotonic.h"

namespace slimps {
namespace {

constexpr double kLearningRate = 1.0 / 1024;
// If the number of workers is no power of two, averaging makes a rounding error in every round.
constexpr double kTolerance = 1e-3;

float GradientAt(size_t element) { return static_cast<float>(1 + element % 7); }

}  // namespace

wire::OptimizerSpec BenchOptimizer() {
  wire::OptimizerSpec sgd;
  sgd.set_kind(wire::OptimizerSpec::SGD);
  sgd.set_learning_rate(kLearningRate);
  sgd.set_average(true);
  return sgd;
}

TensorSet::TensorSet(KVStore* store, const std::string& name, const std::vector<size_t>& elements)
    : store_(store) {
  for (size_t i = 0; i < elements.size(); ++i) {
    tensors_.push_back(Tensor{.key = Key(absl::StrCat(name, "/", i)),
                              .gradient = AlignedBuffer::OfFloats(elements[i]),
                              .weights = AlignedBuffer::OfFloats(elements[i])});
    const std::span<float> gradient = tensors_.back().gradient.floats();
    for (size_t j = 0; j < gradient.size(); ++j) gradient[j] = GradientAt(j);
    std::ranges::fill(tensors_.back().weights.floats(), 0.0f);
  }
}

absl::StatusOr<std::unique_ptr<TensorSet>> TensorSet::Init(KVStore* store, const std::string& name,
                                                           const std::vector<size_t>& elements) {
  std::unique_ptr<TensorSet> set(new TensorSet(store, name, elements));
  std::vector<InitTensor> tensors;
  for (const Tensor& tensor : set->tensors_) {
    tensors.push_back({.key = tensor.key,
                       .shape = {static_cast<int64_t>(tensor.weights.floats().size())},
                       .value = tensor.weights.floats()});
  }
  SLIMPS_RETURN_IF_ERROR(store->Init(tensors));
  return set;
}

absl::Status TensorSet::PushPullAsync(size_t index, int priority, Gradients gradients) {
  Tensor& tensor = tensors_[index];
  tensor.pushed_at = MonotonicSeconds();
  tensor.to_come->store(gradients == Gradients::kLent ? 2 : 1);
  const auto ended = [this, index, to_come = tensor.to_come.get()](const absl::Status& status) {
    if (!status.ok() || --*to_come == 0) completions_.Add(index, status);
  };
  SLIMPS_RETURN_IF_ERROR(Push(tensor, priority, gradients, ended));
  push_seconds_ += MonotonicSeconds() - tensor.pushed_at;
  store_->PullAsync(tensor.key, tensor.weights.floats(), priority, ended);
  return absl::OkStatus();
}

absl::Status TensorSet::Push(Tensor& tensor, int priority, Gradients gradients,
                             std::function<void(absl::Status)> returned) {
  if (gradients == Gradients::kCopied) {
    return store_->Push(tensor.key, tensor.gradient.floats(), priority);
  }
  return store_->PushLent(tensor.key,
                          {{.values = tensor.gradient.floats(),
                            .place = {},
                            .returned = std::move(returned),
                            .until_acknowledged = true}},
                          priority);
}

absl::StatusOr<Times> TensorSet::RunPipelined(uint64_t rounds, Gradients gradients) {
  SLIMPS_RETURN_IF_ERROR(store_->Barrier());
  Times times;
  times.samples_us.reserve(rounds * tensors_.size());
  push_seconds_ = 0;
  const double begin = MonotonicSeconds();
  for (size_t i = 0; i < tensors_.size(); ++i) {
    tensors_[i].left = rounds - 1;
    SLIMPS_RETURN_IF_ERROR(PushPullAsync(i, /*priority=*/0, gradients));
  }
  for (uint64_t pulled = 0; pulled < rounds * tensors_.size(); ++pulled) {
    SLIMPS_ASSIGN_OR_RETURN(const size_t index, completions_.Take());
    Tensor& tensor = tensors_[index];
    times.samples_us.push_back(1e6 * (MonotonicSeconds() - tensor.pushed_at));
    ++tensor.rounds;
    if (tensor.left == 0) continue;
    --tensor.left;
    SLIMPS_RETURN_IF_ERROR(PushPullAsync(index, /*priority=*/0, gradients));
  }
  times.seconds = MonotonicSeconds() - begin;
  times.push_seconds = push_seconds_;
  return times;
}

absl::StatusOr<Times> TensorSet::RunRounds(uint64_t rounds, Gradients gradients) {
  SLIMPS_RETURN_IF_ERROR(store_->Barrier());
  Times times;
  push_seconds_ = 0;
  const double begin = MonotonicSeconds();
  double round_begin = begin;
  for (uint64_t round = 0; round < rounds; ++round) {
    for (size_t i = tensors_.size(); i-- > 0;) {
      SLIMPS_RETURN_IF_ERROR(PushPullAsync(i, -static_cast<int>(i), gradients));
    }
    for (size_t i = 0; i < tensors_.size(); ++i) {
      SLIMPS_ASSIGN_OR_RETURN(const size_t index, completions_.Take());
      ++tensors_[index].rounds;
    }
    const double now = MonotonicSeconds();
    times.samples_us.push_back(1e6 * (now - round_begin));
    round_begin = now;
  }
  times.seconds = MonotonicSeconds() - begin;
  times.push_seconds = push_seconds_;
  return times;
}

absl::StatusOr<Times> TensorSet::RunOneByOne(uint64_t count, absl::Duration pause) {
  SLIMPS_RETURN_IF_ERROR(store_->Barrier());
  Times times;
  times.samples_us.reserve(count);
  Tensor& tensor = tensors_[0];
  const double begin = MonotonicSeconds();
  for (uint64_t i = 0; i < count; ++i) {
    if (pause > absl::ZeroDuration()) absl::SleepFor(pause);
    const double pushed_at = MonotonicSeconds();
    SLIMPS_RETURN_IF_ERROR(store_->PushPull(tensor.key, tensor.gradient.floats(),
                                            tensor.weights.floats(), /*priority=*/0));
    times.samples_us.push_back(1e6 * (MonotonicSeconds() - pushed_at));
    ++tensor.rounds;
  }
  times.seconds = MonotonicSeconds() - begin;
  return times;
}

absl::Status TensorSet::Check() const {
  for (const Tensor& tensor : tensors_) SLIMPS_RETURN_IF_ERROR(CheckTensor(tensor));
  return absl::OkStatus();
}

absl::Status TensorSet::CheckTensor(const Tensor& tensor) const {
  const uint32_t workers = store_->num_workers();
  const double tolerance = (workers & (workers - 1)) == 0 ? 0 : kTolerance;
  const std::span<const float> weights = tensor.weights.floats();
  for (size_t i = 0; i < weights.size(); ++i) {
    const double expected = -kLearningRate * GradientAt(i) * static_cast<double>(tensor.rounds);
    if (std::abs(weights[i] - expected) <= tolerance * std::abs(expected)) continue;
    return absl::DataLossError(absl::StrCat("key ", tensor.key.typed_name(), " element ", i,
                                            " after ", tensor.rounds, " rounds: expected ",
                                            expected, ", got ", weights[i]));
  }
  return absl::OkStatus();
}

size_t TensorSet::bytes() const {
  size_t bytes = 0;
  for (const Tensor& tensor : tensors_) bytes += tensor.weights.size();
  return bytes;
}

}  // namespace slimps
