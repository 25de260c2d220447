// SPDX-License-Identifier: Apache-2.0
#include "server/round/stateful_optimizer.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/base/hash.h"
#include "proto/base/status_macros.h"
#include "proto/limits.h"

namespace slimps {
namespace {

// What a round steps.
enum class Extent { kAll, kRows, kNothing };

Extent ExtentOf(const AggregateInput& round, wire::OptimizerSpec::Kind kind) {
  if (kind == wire::OptimizerSpec::NONE) return Extent::kAll;
  Extent extent = Extent::kNothing;
  for (const PayloadView& view : round.payloads) {
    if (view.format == PayloadFormat::kAbsent) continue;
    if (view.format != PayloadFormat::kRows || round.combine != Combine::kSum) return Extent::kAll;
    extent = Extent::kRows;
  }
  return extent;
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
}

WireValue StatefulOptimizer::Share(uint64_t version, wire::OptimizerState* state) const {
  const size_t tensor = state->tensor(), tensors = optimizer_->state_tensors();
  state->set_kind(kind());
  state->set_tensors(static_cast<uint32_t>(tensors));
  state->set_updates(updates_);
  WireValue value{.version = version, .format = PayloadFormat::kAbsent};
  if (tensor == 0 || tensor > tensors || spec_.elements == 0) return value;
  AlignedBuffer copy = AlignedBuffer::OfFloats(spec_.elements, BufferUse::kPayload);
  std::ranges::copy(tensors_[tensor - 1].floats(), copy.floats().begin());
  if (spec_.hashing == PayloadHashing::kXxh3) value.hash = HashBytes(copy.bytes());
  value.format = PayloadFormat::kRawF32;
  value.payload = Payload::Adopt(std::move(copy), spec_.elements * sizeof(float));
  return value;
}

absl::Status StatefulOptimizer::CheckPut(const wire::OptimizerState& state,
                                         const ClaimedPayload& value) const {
  const size_t tensors = optimizer_->state_tensors();
  if (state.kind() != kind() || state.tensors() != tensors) {
    return absl::FailedPreconditionError(
        absl::StrCat("optimizer state: expected that of ", wire::OptimizerSpec::Kind_Name(kind()),
                     " with ", tensors, " tensors, got ",
                     wire::OptimizerSpec::Kind_Name(state.kind()), " with ", state.tensors()));
  }
  if (state.tensor() == 0 || state.tensor() > tensors || value.format != PayloadFormat::kRawF32) {
    return absl::InvalidArgumentError(
        absl::StrCat("optimizer state: expected tensor 1 to ", tensors, " in raw fp32, got tensor ",
                     state.tensor(), " in ", std::string(FormatName(value.format))));
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
  const std::span<float> mine = tensors_[state.tensor() - 1].floats();
  for (size_t first = 0; first < mine.size(); first += kBlockElements) {
    Decode(value.format, value.payload.bytes(), mine.size(), first,
           mine.subspan(first, std::min(kBlockElements, mine.size() - first)));
  }
  updates_ = state.updates();
  return absl::OkStatus();
}

}  // namespace slimps
