// SPDX-License-Identifier: Apache-2.0
#include "worker/local/local_tensor.h"

#include <algorithm>
#include <vector>

#include "compress/format/format.h"
#include "proto/base/status_macros.h"
#include "proto/learning_rate.h"
#include "worker/combination.h"
#include "worker/local/running_updater.h"
#include "worker/tensor/value_check.h"

namespace slimps {
namespace {

// Copies `from` to `to` with the rounding of `codec`. Copies the values unchanged if the codec
// cannot carry one of them.
void CopyThrough(const Codec& codec, std::span<const float> from, std::span<float> to) {
  std::vector<std::byte> bytes(codec.MaxPayloadBytes(from.size()));
  if (!codec.Encode({.gradient = from}, bytes).ok()) {
    std::copy(from.begin(), from.end(), to.begin());
    return;
  }
  for (size_t first = 0; first < to.size(); first += kBlockElements) {
    Decode(codec.format(), bytes, to.size(), first,
           to.subspan(first, std::min(kBlockElements, to.size() - first)));
  }
}

std::vector<float> CopyOf(std::span<const float> values) { return {values.begin(), values.end()}; }

// Restores all rows of `after` except `touched` (rising) to their values in `before`. An empty
// `before` stands for zeros.
void PutBack(std::span<const float> before, std::span<const int64_t> touched, size_t row_elements,
             std::span<float> after) {
  if (after.empty()) return;  // the optimizer does not have this moment
  size_t begin = 0;
  for (size_t i = 0; i <= touched.size(); ++i) {
    const size_t end =
        i < touched.size() ? static_cast<size_t>(touched[i]) * row_elements : after.size();
    const auto gap = after.subspan(begin, end - begin);
    if (before.empty()) {
      std::ranges::fill(gap, 0.0f);
    } else {
      std::ranges::copy(before.subspan(begin, gap.size()), gap.begin());
    }
    begin = end + row_elements;
  }
}

}  // namespace

// ---- pushes -------------------------------------------------------------------------------------

absl::Status LocalTensor::Push(const PushInForce& in_force,
                               std::span<const std::span<const float>> gradients,
                               float grad_scale) {
  MutexLock lock(&mutex_);
  SLIMPS_ASSIGN_OR_RETURN(const std::span<const float> sum, Sum(in_force, gradients, grad_scale));
  ApplyLocked(in_force, sum);
  return absl::OkStatus();
}

std::span<float> LocalTensor::SumMemory() {
  if (sum_.size() == 0) sum_ = AlignedBuffer::OfFloats(plan_.elements);
  return sum_.floats();
}

absl::StatusOr<std::span<const float>> LocalTensor::Sum(
    const PushInForce& in_force, std::span<const std::span<const float>> gradients,
    float grad_scale) {
  if (in_force.compressor != nullptr) {
    const uint64_t round = keys_->PushedRounds(plan_.key) + 1;
    const std::span<float> sum = SumMemory();
    PushCounts counts;
    SLIMPS_RETURN_IF_ERROR(in_force.compressor->Sum(plan_, round, gradients, sum, &counts));
    MutexLock lock(&counts_mutex_);
    counts_.Add(counts);
    return sum;
  }
  for (const std::span<const float> gradient : gradients) {
    SLIMPS_RETURN_IF_ERROR(CheckFinite(plan_.key, gradient, grad_scale, "push"));
  }
  if (gradients.size() == 1 && grad_scale == 1.0f) return gradients[0];
  const std::span<float> sum = SumMemory();
  SumDevices(gradients, sum, grad_scale);
  SLIMPS_RETURN_IF_ERROR(CheckFinite(plan_.key, sum, /*scale=*/1, "sum of the push"));
  return sum;
}

void LocalTensor::Apply(const PushInForce& in_force, std::span<const float> sum) {
  MutexLock lock(&mutex_);
  ApplyLocked(in_force, sum);
}

void LocalTensor::ApplyLocked(const PushInForce& in_force, std::span<const float> sum) {
  const LocalRule& rule = *in_force.rule;
  const std::span<float> weights = weights_.floats();
  if (rule.updater != nullptr) {
    const RunningUpdater running(store_);
    rule.updater(plan_.key, sum, weights);
    keys_->CountPush(plan_.key);
    return;
  }
  if (state_of_ != rule.spec.kind()) {
    state_ = LocalUpdaterState();
    state_of_ = rule.spec.kind();
  }
  const CountedPush push = keys_->CountPush(plan_.key);
  Hyper hyper{
      .learning_rate = LearningRateAt(rule.spec.learning_rate(), rule.spec.schedule(), push.round),
      .weight_decay = rule.spec.weight_decay()};
  if (push.hyper.has_value()) {
    hyper = {.learning_rate = push.hyper->learning_rate(),
             .weight_decay = push.hyper->weight_decay()};
    if (push.hyper->has_momentum()) hyper.momentum = push.hyper->momentum();
  }
  if (in_force.compressor != nullptr) {
    // The codec has the momentum that the optimizer lacks: scales the decay to what momentum SGD
    // would make of it (combination.h).
    hyper.weight_decay *= DecayFactor(in_force.compressor->codec(), rule.spec);
  }
  rule.optimizer.Step(weights, sum, hyper, state_, weights);
}

void LocalTensor::ApplyRows(const PushInForce& in_force, const SummedRows& rows) {
  const size_t row_elements = RowElements(plan_);
  std::vector<float> sum(plan_.elements);
  for (size_t i = 0; i < rows.rows.size(); ++i) {
    std::copy_n(rows.values.begin() + static_cast<std::ptrdiff_t>(i * row_elements), row_elements,
                sum.begin() + rows.rows[i] * static_cast<std::ptrdiff_t>(row_elements));
  }
  MutexLock lock(&mutex_);
  // An updater gets the whole sum, and without an optimizer the whole sum replaces the value. Only
  // an optimizer steps the pushed rows alone.
  if (in_force.rule->updater != nullptr ||
      in_force.rule->spec.kind() == wire::OptimizerSpec::NONE) {
    return ApplyLocked(in_force, sum);
  }
  StepRows(in_force, sum, rows.rows);
}

void LocalTensor::StepRows(const PushInForce& in_force, std::span<const float> sum,
                           std::span<const int64_t> rows) {
  // The optimizer steps the whole tensor, and the untouched rows are put back afterwards. A moment
  // that does not exist yet, or that is of another optimizer, begins with zeros.
  const size_t row_elements = RowElements(plan_);
  const bool goes_on = state_of_ == in_force.rule->spec.kind();
  const std::vector<float> weights = CopyOf(weights_.floats());
  const auto moment = [&](AlignedBuffer& buffer) {
    return goes_on && buffer.size() > 0 ? CopyOf(buffer.floats()) : std::vector<float>();
  };
  const std::vector<float> first = moment(state_.first_moment);
  const std::vector<float> second = moment(state_.second_moment);
  ApplyLocked(in_force, sum);
  PutBack(weights, rows, row_elements, weights_.floats());
  PutBack(first, rows, row_elements, state_.first_moment.floats());
  PutBack(second, rows, row_elements, state_.second_moment.floats());
}

// ---- pulls, states, counts ----------------------------------------------------------------------

void LocalTensor::Pull(const Codec* half, std::span<float> out) const {
  MutexLock lock(&mutex_);
  const std::span<const float> weights = weights_.floats();
  if (half != nullptr) return CopyThrough(*half, weights, out);
  std::copy(weights.begin(), weights.end(), out.begin());
}

void LocalTensor::SaveState(wire::OptimizerSpec::Kind kind, KeyState* saved) const {
  MutexLock lock(&mutex_);
  if (state_of_ != kind) return;
  const AlignedBuffer* const moments[] = {&state_.first_moment, &state_.second_moment};
  saved->updates = static_cast<uint64_t>(state_.steps);
  for (size_t i = 0; i < saved->tensors.size(); ++i) {
    std::ranges::copy(moments[i]->floats(), saved->tensors[i].begin());
  }
}

void LocalTensor::SetState(wire::OptimizerSpec::Kind kind, LocalUpdaterState state) {
  MutexLock lock(&mutex_);
  state_ = std::move(state);
  state_of_ = kind;
}

PushCounts LocalTensor::counts() const {
  MutexLock lock(&counts_mutex_);
  return counts_;
}

}  // namespace slimps
