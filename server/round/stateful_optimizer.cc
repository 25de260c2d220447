// SPDX-License-Identifier: Apache-2.0
#include "server/round/stateful_optimizer.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "compress/kernels/frozen_variance.h"
#include "proto/base/clock.h"
#include "proto/base/hash.h"
#include "proto/base/simulation/mutant.h"
#include "proto/base/status_macros.h"
#include "proto/limits.h"

namespace slimps {
namespace {

// What a round steps.
enum class Extent { kAll, kRows, kNothing };

Extent ExtentOf(const AggregateInput& round, wire::OptimizerSpec::Kind kind) {
  // To 1-bit Adam a missing gradient is zero, so that all keys freeze in the same round.
  if (kind == wire::OptimizerSpec::NONE || kind == wire::OptimizerSpec::ONEBIT_ADAM) {
    return Extent::kAll;
  }
  Extent extent = Extent::kNothing;
  for (const PayloadView& view : round.payloads) {
    if (view.format == PayloadFormat::kAbsent) continue;
    if (view.format != PayloadFormat::kRows || round.combine != Combine::kSum) return Extent::kAll;
    extent = Extent::kRows;
  }
  return extent;
}

// Leaves room for the rounding of the sums of squares.
constexpr double kRounding = 1.001;

// Returns true if `stats` describes an encoding that is worth sending in place of `values`.
bool IsWorth(const absl::StatusOr<EncodeStats>& stats, std::span<const float> values) {
  return stats.ok() && stats->payload_bytes < values.size_bytes() &&
         stats->error_norm2 <= stats->input_norm2 * kRounding;
}

// Encodes momentum + residual. Replaces the momentum by what the encoding says, and the residual by
// what it leaves out.
EncodedChange EncodeMomentum(const StatefulOptimizer::MomentumRound& round,
                             std::span<float> momentum, std::span<float> residual) {
  for (size_t i = 0; i < momentum.size(); ++i) {
    momentum[i] += residual[i];
    residual[i] = 0;
  }
  const ChangeCodec* const change = round.codec;
  if (change != nullptr && change->encodes_change()) {
    const auto now = [&] { return change->clock == nullptr ? SteadyTime() : change->clock->Now(); };
    const SteadyTime start = now();
    change->workspace->Reset();
    const absl::StatusOr<EncodeStats> stats = change->codec->Encode(
        {.gradient = momentum, .residual = residual, .context = round.context}, round.payload,
        *change->workspace);
    if (IsWorth(stats, momentum)) {
      const PayloadFormat format = change->codec->format();
      const std::span<const std::byte> payload = round.payload.first(stats->payload_bytes);
      for (size_t first = 0; first < momentum.size(); first += kBlockElements) {
        const size_t length = std::min(kBlockElements, momentum.size() - first);
        Decode(format, payload, momentum.size(), first, momentum.subspan(first, length));
      }
      const int64_t took = std::max<int64_t>(0, absl::ToInt64Nanoseconds(now() - start));
      return {.format = format, .bytes = payload.size(), .encode_ns = static_cast<uint64_t>(took)};
    }
    std::ranges::fill(residual, 0.0f);
  }
  std::ranges::copy(std::as_bytes(momentum), round.payload.begin());
  return {.format = PayloadFormat::kRawF32, .bytes = momentum.size_bytes()};
}

}  // namespace

StatefulOptimizer::StatefulOptimizer(const PartitionSpec& spec,
                                     std::shared_ptr<const Optimizer> optimizer)
    : spec_(spec), optimizer_(std::move(optimizer)) {
  Grow(optimizer_->state_tensors());
}

void StatefulOptimizer::Grow(size_t tensors) {
  while (tensors_.size() < tensors) {
    AlignedBuffer tensor = AlignedBuffer::OfFloats(spec_.elements);
    std::ranges::fill(tensor.floats(), 0.0f);
    tensors_.push_back(std::move(tensor));
  }
}

void StatefulOptimizer::Replace(std::shared_ptr<const Optimizer> optimizer) {
  // Grown first: if that throws, the old optimizer stays in force.
  Grow(optimizer->state_tensors());
  // State of another kind of optimizer, gathered or put back, means nothing to this one.
  if (kind() != optimizer->spec().kind()) {
    tensors_.resize(optimizer->state_tensors());
    for (AlignedBuffer& tensor : tensors_) std::ranges::fill(tensor.floats(), 0.0f);
    updates_ = 0;
    frozen_ = false;
  }
  optimizer_ = std::move(optimizer);
}

void StatefulOptimizer::Step(AggregateInput round, Optimizer::Moment moment) {
  const auto tensor = [this](size_t i) {
    return i < tensors_.size() ? tensors_[i].floats() : std::span<float>();
  };
  const Extent extent = ExtentOf(round, kind());
  moment.updates = updates_;
  round.optimizer = optimizer_.get();
  round.step = optimizer_->PlanStep(moment);
  round.state0 = tensor(0);
  round.state1 = tensor(1);
  round.touched_only = extent != Extent::kAll;
  AggregateRound(round, 0, round.after.size());
  if (extent != Extent::kNothing) ++updates_;
  const uint64_t freeze_after = optimizer_->spec().freeze_after();
  if (freeze_after != 0 && updates_ >= freeze_after) {
    Freeze(moment.contributors);
  }
}

void StatefulOptimizer::Freeze(uint32_t contributors) {
  Grow(3);
  const double beta2 = optimizer_->spec().beta2();
  const double correction = 1 - std::pow(beta2, static_cast<double>(updates_));
  for (float& v : tensors_[1].floats()) v = static_cast<float>(v / correction);
  frozen_ = true;
  Announce({}, contributors);
}

void StatefulOptimizer::Announce(const Optimizer::Step& step, uint32_t contributors,
                                 std::span<const uint32_t> unmasked) {
  const double scale = optimizer_->ScaleOfMean(contributors);
  exchange_.set_beta1(static_cast<float>(optimizer_->spec().beta1()));
  exchange_.set_unscale(static_cast<float>(1 / scale));
  exchange_.set_scale(static_cast<float>(scale));
  exchange_.set_step(step.adam_step);
  exchange_.set_epsilon(step.epsilon);
  exchange_.set_shrink(step.shrink);
  exchange_.clear_unmasked();
  exchange_.mutable_unmasked()->Add(unmasked.begin(), unmasked.end());
}

std::optional<wire::MomentumExchange> StatefulOptimizer::exchange() const {
  return frozen_ ? std::optional(exchange_) : std::nullopt;
}

size_t StatefulOptimizer::MomentumBytes(const ChangeCodec* codec) const {
  const size_t raw = spec_.elements * sizeof(float);
  return codec == nullptr ? raw : std::max(raw, codec->codec->MaxPayloadBytes(spec_.elements));
}

EncodedChange StatefulOptimizer::StepMomentum(const MomentumRound& round,
                                              Optimizer::Moment moment) {
  const std::span<float> m = tensors_[0].floats(), v = tensors_[1].floats(),
                         residual = tensors_[2].floats();
  const auto mean = static_cast<float>(1.0 / moment.contributors);
  for (size_t first = 0; first < m.size(); first += kBlockElements) {
    const std::span<float> block = m.subspan(first, std::min(kBlockElements, m.size() - first));
    SumPayloads(round.payloads, m.size(), first, block);
    for (float& value : block) value *= mean;
  }
  const EncodedChange answer = EncodeMomentum(round, m, residual);
  moment.updates = updates_;
  Optimizer::Step step = WithFrozenVariance(optimizer_->PlanStep(moment));
  const size_t unmasked = std::min(round.unmasked.size(), 2 * kMaxUnmaskedRuns);
  Announce(step, moment.contributors, round.unmasked.first(unmasked));
  step.scale = static_cast<float>(exchange_.scale());
  SettleMomentum(round.unmasked.first(unmasked),
                 {.scale = step.scale, .beta1 = static_cast<float>(exchange_.beta1())}, m, v);
  // Else the error of what masked elements were sent would come back as their first momentum.
  for (size_t i = 0; i < residual.size(); ++i) {
    if (IsMasked(v[i])) residual[i] = 0;
  }
  optimizer_->RuleOf(BestKernels())
      .store(step, {.before = round.before.data(),
                    .sum = m.data(),
                    .after = round.after.data(),
                    .state0 = m.data(),
                    .state1 = v.data(),
                    .n = m.size()});
  ++updates_;
  return answer;
}

WireValue StatefulOptimizer::Share(uint64_t version, wire::OptimizerState* state) const {
  const size_t tensor = state->tensor(), tensors = state_tensors();
  state->set_kind(kind());
  state->set_tensors(static_cast<uint32_t>(tensors));
  state->set_updates(updates_);
  WireValue value{.version = version, .format = PayloadFormat::kAbsent};
  if (tensor == 0 || tensor > tensors || spec_.elements == 0 || untouched()) return value;
  AlignedBuffer copy = AlignedBuffer::OfFloats(spec_.elements, BufferUse::kPayload);
  std::ranges::copy(tensors_[tensor - 1].floats(), copy.floats().begin());
  if (spec_.hashing == PayloadHashing::kXxh3) value.hash = HashBytes(copy.bytes());
  value.format = PayloadFormat::kRawF32;
  value.payload = Payload::Adopt(std::move(copy), spec_.elements * sizeof(float));
  return value;
}

absl::Status StatefulOptimizer::CheckPut(const wire::OptimizerState& state,
                                         const ClaimedPayload& value) const {
  // A third tensor says that the variance is frozen.
  const bool may_freeze = kind() == wire::OptimizerSpec::ONEBIT_ADAM && state.tensors() == 3;
  const size_t tensors = may_freeze ? 3 : optimizer_->state_tensors();
  if (state.kind() != kind() || state.tensors() != tensors) {
    return absl::FailedPreconditionError(
        absl::StrCat("optimizer state: expected that of ", wire::OptimizerSpec::Kind_Name(kind()),
                     " with ", tensors, " tensors, got ",
                     wire::OptimizerSpec::Kind_Name(state.kind()), " with ", state.tensors()));
  }
  const bool known =
      value.format == PayloadFormat::kRawF32 || value.format == PayloadFormat::kAbsent;
  if (state.tensor() == 0 || state.tensor() > tensors || !known) {
    return absl::InvalidArgumentError(
        absl::StrCat("optimizer state: expected tensor 1 to ", tensors,
                     " in raw fp32, or absent for zeros, got tensor ", state.tensor(), " in ",
                     std::string(FormatName(value.format))));
  }
  if (state.load() == 0 || state.updates() > kMaxUpdates) {
    return absl::InvalidArgumentError(
        absl::StrCat("optimizer state: expected loads numbered from 1 and at most ", kMaxUpdates,
                     " updates, got load ", state.load(), " and ", state.updates()));
  }
  return ValidatePayload(value.format, value.payload.bytes(), spec_.elements);
}

absl::Status StatefulOptimizer::Put(const wire::OptimizerState& state,
                                    const ClaimedPayload& value) {
  SLIMPS_RETURN_IF_ERROR(CheckPut(state, value));
  uint64_t& newest = loads_[state.tensor() - 1];
  if (state.load() <= newest) return absl::OkStatus();
  newest = state.load();
  Grow(state.tensors());
  tensors_.resize(state.tensors());
  frozen_ = state.tensors() == 3;
  if (frozen_) Announce({}, spec_.num_workers);
  const std::span<float> mine = tensors_[state.tensor() - 1].floats();
  std::ranges::fill(mine, 0.0f);
  const size_t coded = value.format == PayloadFormat::kAbsent ? 0 : mine.size();
  for (size_t first = 0; first < coded; first += kBlockElements) {
    Decode(value.format, value.payload.bytes(), mine.size(), first,
           mine.subspan(first, std::min(kBlockElements, mine.size() - first)));
  }
  updates_ = state.updates();
  return absl::OkStatus();
}

void StatefulOptimizer::Save(saved::Optimizer* fields, PartitionImage* image) const {
  *fields->mutable_spec() = optimizer_->spec();
  for (const AlignedBuffer& tensor : tensors_) {
    fields->add_tensor_parts(image->AddCopy(tensor.bytes()));
  }
  fields->set_updates(updates_);
  fields->mutable_loads()->Add(loads_.begin(), loads_.end());
  fields->set_frozen(frozen_);
  *fields->mutable_exchange() = exchange_;
}

absl::Status StatefulOptimizer::Restore(const saved::Optimizer& fields,
                                        const PartitionImage& image) {
  SLIMPS_ASSIGN_OR_RETURN(optimizer_, Optimizer::Create(fields.spec()));
  const auto tensors = static_cast<size_t>(fields.tensor_parts_size());
  const bool may_freeze = kind() == wire::OptimizerSpec::ONEBIT_ADAM;
  if (tensors < (fields.frozen() ? 3 : optimizer_->state_tensors()) || tensors > loads_.size() ||
      (fields.frozen() && !may_freeze) ||
      static_cast<size_t>(fields.loads_size()) != loads_.size()) {
    return BadImage(
        absl::StrCat(tensors, " tensors of state for ", wire::OptimizerSpec::Kind_Name(kind())));
  }
  tensors_.clear();
  Grow(tensors);
  for (size_t i = 0; i < tensors; ++i) {
    SLIMPS_RETURN_IF_ERROR(
        image.CopyTo(fields.tensor_parts(static_cast<int>(i)), tensors_[i].bytes()));
  }
  if (simulation::Is(Mutant::kSnapshotWithoutState)) {
    for (AlignedBuffer& tensor : tensors_) std::ranges::fill(tensor.floats(), 0.0f);
  }
  updates_ = fields.updates();
  std::ranges::copy(fields.loads(), loads_.begin());
  frozen_ = fields.frozen();
  exchange_ = fields.exchange();
  return absl::OkStatus();
}

}  // namespace slimps
