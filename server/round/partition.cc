// SPDX-License-Identifier: Apache-2.0
#include "server/round/partition.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "compress/format/philox.h"
#include "proto/base/clock.h"
#include "proto/base/status_macros.h"
#include "proto/base/trace/trace.h"
#include "proto/optimizer_check.h"
#include "server/round/aggregate.h"

namespace slimps {
namespace {

// Folding passes over the sum so far again. It must release at least 1 / kWorthFolding of a dense
// sum.
constexpr size_t kWorthFolding = 8;

PayloadFormat WireFormatOf(wire::DType dtype) {
  switch (dtype) {
    case wire::FLOAT16:
      return PayloadFormat::kRawF16;
    case wire::BFLOAT16:
      return PayloadFormat::kRawBf16;
    default:
      return PayloadFormat::kRawF32;
  }
}

std::string DescribeWorkers(const std::vector<uint32_t>& workers) {
  return absl::StrCat(workers.size() == 1 ? "worker " : "workers ", absl::StrJoin(workers, ", "));
}

}  // namespace

absl::Status NeedsOptimizer(wire::StoreMode mode) {
  return absl::FailedPreconditionError(
      absl::StrCat(mode == wire::DIST_SSP ? "dist_ssp" : "dist_async",
                   " needs an optimizer on the server: it has no rounds whose sum could be kept"));
}

absl::StatusOr<PayloadFormat> FormatFromWire(wire::Format format) {
  switch (format) {
    case wire::ABSENT:
      return PayloadFormat::kAbsent;
    case wire::RAW_F32:
      return PayloadFormat::kRawF32;
    case wire::RAW_F16:
      return PayloadFormat::kRawF16;
    case wire::RAW_BF16:
      return PayloadFormat::kRawBf16;
    case wire::LEVELS:
      return PayloadFormat::kLevels;
    case wire::SPARSE:
      return PayloadFormat::kSparse;
    case wire::ROWS:
      return PayloadFormat::kRows;
    default:
      return absl::InvalidArgumentError(
          absl::StrCat("payload format ", static_cast<int>(format), " cannot be decoded here"));
  }
}

std::string DescribePartition(const std::string& key_name, uint32_t index) {
  return absl::StrCat("key ", key_name, " partition ", index);
}

Partition::Partition(PartitionSpec spec, uint64_t checksum,
                     std::shared_ptr<const Optimizer> optimizer)
    : spec_(std::move(spec)),
      init_checksum_(checksum),
      optimizer_(std::move(optimizer)),
      weights_(spec_.elements, WireFormatOf(spec_.dtype), spec_.hashing),
      rounds_(spec_.num_workers, spec_.waiting),
      partial_(spec_.elements),
      sequences_(applies_at_once() ? spec_.num_workers : 0,
                 spec_.mode == wire::DIST_SSP ? std::optional(spec_.staleness) : std::nullopt) {
  views_.reserve(spec_.num_workers);
  GrowState(optimizer_->state_tensors());
}

absl::StatusOr<std::unique_ptr<Partition>> Partition::Create(
    PartitionSpec spec, const ClaimedPayload& value, std::shared_ptr<const Optimizer> optimizer) {
  const absl::Status valid = ValidatePayload(value.format, value.payload.bytes(), spec.elements);
  if (!valid.ok()) {
    return absl::Status(valid.code(), absl::StrCat(DescribePartition(spec.name, spec.index),
                                                   ": initial value: ", valid.message()));
  }
  // A worker that initialises without a checksum wants none in pulls either.
  const bool hashed = value.checksum != 0 || value.payload.empty();
  spec.hashing = hashed ? PayloadHashing::kXxh3 : PayloadHashing::kOff;
  if (spec.waiting == nullptr) spec.waiting = std::make_shared<WaitingBytes>();
  std::unique_ptr<Partition> partition(
      new Partition(std::move(spec), value.checksum, std::move(optimizer)));
  const std::span<float> weights = partition->weights_.MutableInitial();
  for (size_t first = 0; first < weights.size(); first += kBlockElements) {
    const size_t length = std::min(kBlockElements, weights.size() - first);
    Decode(value.format, value.payload.bytes(), weights.size(), first,
           weights.subspan(first, length));
  }
  return partition;
}

void Partition::GrowState(size_t tensors) {
  while (state_.size() < tensors) {
    AlignedBuffer tensor = AlignedBuffer::OfFloats(spec_.elements);
    std::fill(tensor.floats().begin(), tensor.floats().end(), 0.0f);
    state_.push_back(std::move(tensor));
  }
}

absl::Status Partition::Annotate(const absl::Status& status) const {
  if (status.ok()) return status;
  return absl::Status(status.code(), absl::StrCat(DescribePartition(spec_.name, spec_.index), ": ",
                                                  std::string(status.message())));
}

absl::Status Partition::CheckRepeatedInit(const PartitionSpec& spec, uint64_t checksum) const {
  if (spec.elements != spec_.elements || spec.offset != spec_.offset || spec.dtype != spec_.dtype ||
      spec.name != spec_.name || spec.mode != spec_.mode || spec.staleness != spec_.staleness ||
      spec.combine != spec_.combine) {
    return Annotate(absl::AlreadyExistsError(absl::StrCat(
        "initialised before with ", spec_.elements, " elements of ", wire::DType_Name(spec_.dtype),
        " at offset ", spec_.offset, ", now with ", spec.elements, " of ",
        wire::DType_Name(spec.dtype), " at offset ", spec.offset)));
  }
  if (checksum != init_checksum_) {
    return Annotate(absl::AlreadyExistsError(
        absl::StrCat("initialised before with a value of checksum ", absl::Hex(init_checksum_),
                     ", now with ", absl::Hex(checksum))));
  }
  return absl::OkStatus();
}

absl::Status Partition::CheckPush(size_t elements, const ClaimedPayload& claimed,
                                  const std::optional<wire::Hyper>& hyper) const {
  SLIMPS_RETURN_IF_ERROR(ValidatePayload(claimed.format, claimed.payload.bytes(), elements));
  SLIMPS_RETURN_IF_ERROR(CheckRows(claimed));
  return hyper.has_value() ? ValidateHyper(*hyper) : absl::OkStatus();
}

absl::StatusOr<PushVerdict> Partition::Push(uint64_t round, uint32_t worker, size_t elements,
                                            ClaimedPayload claimed,
                                            std::shared_ptr<const ChangeCodec> change,
                                            std::optional<wire::Hyper> hyper) {
  if (elements != spec_.elements) {
    return Annotate(absl::InvalidArgumentError(absl::StrCat(
        "worker ", worker, " pushes ", elements, " elements, expected ", spec_.elements)));
  }
  const absl::Status valid = CheckPush(elements, claimed, hyper);
  if (!valid.ok()) {
    return Annotate(
        absl::Status(valid.code(), absl::StrCat("push of worker ", worker, " round ", round, ": ",
                                                std::string(valid.message()))));
  }
  if (!applies_at_once()) {
    absl::StatusOr<PushVerdict> verdict = PushToRound({.round = round,
                                                       .worker = worker,
                                                       .checksum = claimed.checksum,
                                                       .format = claimed.format,
                                                       .payload = std::move(claimed.payload)},
                                                      std::move(change), std::move(hyper));
    if (!verdict.ok()) return Annotate(verdict.status());
    return verdict;
  }
  if (change != nullptr) {
    return Annotate(absl::InvalidArgumentError(absl::StrCat(
        "push of worker ", worker, " asks for pulls by codec ", change->codec->spec().ToString(),
        ", which needs dist_sync; here each worker pulls versions of its own")));
  }
  if (optimizer_->spec().kind() == wire::OptimizerSpec::NONE) {
    return Annotate(NeedsOptimizer(spec_.mode));
  }
  NextVersion next;
  // Allocates before the push counts, so that nothing can fail afterwards.
  BeginVersion(nullptr, PreviousVersion::kDrop, &next);
  absl::StatusOr<PushVerdict> verdict = sequences_.Push(round, worker, claimed.checksum);
  if (!verdict.ok()) return Annotate(verdict.status());
  if (*verdict == PushVerdict::kDuplicate) return verdict;
  const Contribution contribution = {.format = claimed.format,
                                     .payload = std::move(claimed.payload)};
  Apply({&contribution, 1}, std::move(hyper), next);
  return verdict;
}

absl::StatusOr<PushVerdict> Partition::PushToRound(PushRecord push,
                                                   std::shared_ptr<const ChangeCodec> change,
                                                   std::optional<wire::Hyper> hyper) {
  const uint64_t round = push.round;
  const uint32_t worker = push.worker;
  // Allocated before the push counts, so that nothing can fail afterwards. If the push throws, the
  // entry stays behind empty, and any worker overrides it.
  const auto [choice, is_first] = choices_.try_emplace(round, Choice());
  absl::StatusOr<PushVerdict> verdict = rounds_.Push(std::move(push));
  if (verdict.ok() && *verdict == PushVerdict::kAccepted) {
    Choice& chosen = choice->second;
    if (worker < chosen.worker) {
      chosen.worker = worker;
      chosen.codec = std::move(change);
    }
    if (hyper.has_value() && worker < chosen.hyper_worker) {
      chosen.hyper_worker = worker;
      chosen.hyper = std::move(hyper);
    }
    FoldIfTight();
  } else if (is_first) {
    choices_.erase(choice);
  }
  return verdict;
}

void Partition::FoldIfTight() {
  if (!spec_.waiting->is_tight() || rounds_.NextRoundComplete()) return;
  // Folding must free more than the sum grows, and enough to pay for a pass over the sum so far.
  const size_t before = partial_.bytes(), dense = partial_.dense_bytes();
  const size_t growth = dense > before ? dense - before : 0;
  if (const size_t bytes = rounds_.prefix_bytes();
      bytes == 0 || bytes < std::max(growth, dense / kWorthFolding)) {
    return;
  }
  const std::vector<Contribution> prefix = rounds_.Prefix();
  if (partial_.contributors() + prefix.size() < 2)
    return;  // one alone may be stepped by as it came (partial_sum.h)
  const TraceSpan span(TraceStage::kAggregate, {spec_.name, spec_.index, version() + 1});
  partial_.Add(prefix);
  rounds_.ReleasePrefix();
  spec_.waiting->Add(partial_.bytes());
  spec_.waiting->Remove(before);
}

absl::Status Partition::Leave(uint32_t worker, uint64_t from_round) {
  switch (spec_.mode) {
    case wire::DIST_ASYNC:  // no worker waits for another
      return absl::OkStatus();
    case wire::DIST_SSP:
      return Annotate(sequences_.Leave(worker, from_round));
    default:
      return Annotate(rounds_.Leave(worker, from_round));
  }
}

void Partition::SetOptimizer(std::shared_ptr<const Optimizer> optimizer) {
  // Grown first: if that throws, the old optimizer stays in force.
  GrowState(optimizer->state_tensors());
  // State of another kind of optimizer, gathered or put by PutState, means nothing to this one.
  if (optimizer_->spec().kind() != optimizer->spec().kind()) {
    state_.resize(optimizer->state_tensors());
    for (AlignedBuffer& tensor : state_) std::ranges::fill(tensor.floats(), 0.0f);
    updates_ = 0;
  }
  optimizer_ = std::move(optimizer);
}

bool Partition::HasCompleteRound() const { return rounds_.NextRoundComplete(); }

Partition::Choice Partition::TakeChoice(uint64_t round) {
  const auto found = choices_.find(round);
  if (found == choices_.end()) return {};
  Choice choice = std::move(found->second);
  choices_.erase(found);
  return choice;
}

EncodeContext Partition::ChangeContext() const {
  return {.key = spec_.key,
          .partition = spec_.index,
          .round = version() + 1,
          .worker = kAnyWorker,  // no worker's own random stream
          .layer = spec_.layer};
}

void Partition::BeginVersion(std::shared_ptr<const ChangeCodec> codec, PreviousVersion previous,
                             NextVersion* next) {
  next->codec = std::move(codec);
  next->before = weights();
  next->after = weights_.BeginNext(previous);
  if (next->codec != nullptr && next->codec->encodes_change()) BeginChange(next);
}

void Partition::BeginChange(NextVersion* next) {
  next->seen = {.before = weights_.current(), .after = next->after};
  next->payload = weights_.BeginChange(next->codec->codec->MaxPayloadBytes(spec_.elements));
  if (weights_.IsConverted()) {
    next->converted = AlignedBuffer::OfFloats(spec_.elements);
    weights_.CopySeen(next->converted.floats());
    next->seen.before = next->converted.floats();
  }
  if (master_.size() == 0) master_ = AlignedBuffer::OfFloats(spec_.elements);
  next->after = master_.floats();
  if (next->codec->by_blocks == nullptr) return;
  next->codec->workspace->Reset();
  next->encoder.emplace(*next->codec->by_blocks, ChangeContext(), next->seen, next->payload,
                        *next->codec->workspace, next->codec->clock);
}

void Partition::ApplyNextRound() {
  NextVersion next;
  Choice choice = TakeChoice(version() + 1);
  BeginVersion(std::move(choice.codec), PreviousVersion::kKeep, &next);
  const std::vector<Contribution> contributions = rounds_.TakeNextRound();
  Apply(contributions, std::move(choice.hyper), next);
}

void Partition::Apply(std::span<const Contribution> contributions, std::optional<wire::Hyper> hyper,
                      NextVersion& next) {
  const TraceSpan span(TraceStage::kAggregate, {spec_.name, spec_.index, version() + 1});
  views_.clear();
  const size_t folded = partial_.contributors();
  if (folded > 0) views_.push_back(partial_.view());
  for (const Contribution& one : contributions) {
    views_.push_back({.format = one.format, .bytes = one.payload.bytes()});
  }
  const auto state = [this](size_t tensor) {
    return tensor < state_.size() ? state_[tensor].floats() : std::span<float>();
  };
  // A majority is one vote, however many workers gave it, so there is nothing to average.
  const bool summed = spec_.combine == Combine::kSum;
  const Optimizer::Step step = optimizer_->PlanStep(
      {.round = version() + 1,
       .updates = updates_,
       .contributors = summed ? static_cast<uint32_t>(folded + contributions.size()) : 1,
       .hyper = std::move(hyper)});
  const Extent extent = ExtentOfRound();
  AggregateRound({.payloads = views_,
                  .combine = spec_.combine,
                  .optimizer = optimizer_.get(),
                  .step = step,
                  .before = next.before,
                  .after = next.after,
                  .state0 = state(0),
                  .state1 = state(1),
                  .change = next.encoder.has_value() ? &*next.encoder : nullptr,
                  .touched_only = extent != Extent::kAll},
                 0, next.after.size());
  if (extent != Extent::kNothing) ++updates_;
  spec_.waiting->Remove(partial_.bytes());
  partial_.Clear();
  Commit(next);
}

void Partition::Commit(NextVersion& next) {
  if (next.codec != nullptr && next.codec->encodes_change()) return CommitChange(next);
  apart_ = false;
  if (next.codec == nullptr) return weights_.Commit();
  weights_.Commit(next.codec->codec->format());
}

void Partition::CommitChange(NextVersion& next) {
  const ChangeCodec& change = *next.codec;
  absl::Duration took;
  absl::StatusOr<EncodeStats> encoded;
  if (next.encoder.has_value()) {
    encoded = next.encoder->Finish(next.after);
    took = next.encoder->encode_time();
  } else {
    const auto now = [&] { return change.clock == nullptr ? SteadyTime() : change.clock->Now(); };
    const SteadyTime start = now();
    encoded = EncodeWholeChange(*change.codec, ChangeContext(), next.after, next.seen, next.payload,
                                *change.workspace);
    took = now() - start;
  }
  apart_ = true;
  if (encoded.ok() && encoded->payload_bytes >= next.after.size_bytes()) {
    std::copy(next.after.begin(), next.after.end(), next.seen.after.begin());
    return weights_.Commit(PayloadFormat::kRawF32);
  }
  if (!encoded.ok()) return weights_.Commit(PayloadFormat::kRawF32);
  const int64_t encode_ns = std::max<int64_t>(0, absl::ToInt64Nanoseconds(took));
  weights_.CommitChange({.format = change.codec->format(),
                         .bytes = encoded->payload_bytes,
                         .encode_ns = static_cast<uint64_t>(encode_ns)});
}

absl::Status Partition::CheckHeld(uint64_t version) const {
  if (weights_.Holds(version)) return absl::OkStatus();
  return Annotate(absl::FailedPreconditionError(
      absl::StrCat("version ", version, " wanted, which is gone; ", this->version(),
                   " is the current one, and at most the one before it is held")));
}

WireValue Partition::Share(uint64_t wanted, std::optional<uint64_t> held) {
  return weights_.Share(wanted, held);
}

std::string Partition::DescribeWait(uint64_t wanted, uint64_t clock) const {
  if (version() >= wanted) {
    return absl::StrCat(DescribePartition(spec_.name, spec_.index), ": with staleness ",
                        spec_.staleness, " this pull waits for ", clock,
                        " rounds of every worker; fewer came from ",
                        DescribeWorkers(sequences_.Below(clock)));
  }
  std::string text = absl::StrCat(DescribePartition(spec_.name, spec_.index), ": version ", wanted,
                                  " wanted, ", version(), " held");
  if (applies_at_once()) return absl::StrCat(text, "; too few pushes have come");
  const std::vector<uint32_t> missing = rounds_.MissingFromNextRound();
  if (missing.empty()) return absl::StrCat(text, "; every worker has left");
  return absl::StrCat(text, "; round ", rounds_.version() + 1, " lacks the push of ",
                      DescribeWorkers(missing));
}

}  // namespace slimps
