// SPDX-License-Identifier: Apache-2.0
#include "server/round/partition.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "compress/format/lanes.h"
#include "compress/kernels/frozen_variance.h"
#include "compress/kernels/kernels.h"
#include "proto/base/status_copy.h"
#include "proto/base/status_macros.h"
#include "proto/base/trace/trace.h"
#include "proto/optimizer_check.h"
#include "server/round/aggregate.h"
#include "server/round/partition_rows.h"

namespace slimps {
namespace {

std::string DescribeWorkers(const std::vector<uint32_t>& workers) {
  return absl::StrCat(workers.size() == 1 ? "worker " : "workers ", absl::StrJoin(workers, ", "));
}

}  // namespace

Partition::Partition(PartitionSpec spec, uint64_t checksum,
                     std::shared_ptr<const Optimizer> optimizer)
    : spec_(std::move(spec)),
      init_checksum_(checksum),
      weights_(spec_),
      optimizer_(spec_, std::move(optimizer)),
      rounds_(spec_),
      sequences_(applies_at_once() ? spec_.num_workers : 0,
                 spec_.mode == wire::DIST_SSP ? std::optional(spec_.staleness) : std::nullopt) {
  views_.reserve(spec_.num_workers);
}

absl::StatusOr<std::unique_ptr<Partition>> Partition::Create(
    PartitionSpec spec, const ClaimedPayload& value, std::shared_ptr<const Optimizer> optimizer) {
  SLIMPS_RETURN_IF_ERROR(
      Prefixed(ValidatePayload(value.format, value.payload.bytes(), spec.elements),
               absl::StrCat(DescribePartition(spec.name, spec.index), ": initial value")));
  // A worker that initialises without a checksum wants none in pulls either.
  const bool hashed = value.checksum != 0 || value.payload.empty();
  spec.hashing = hashed ? PayloadHashing::kXxh3 : PayloadHashing::kOff;
  if (spec.waiting == nullptr) spec.waiting = std::make_shared<WaitingBytes>();
  if (spec.auxiliary) {
    SLIMPS_ASSIGN_OR_RETURN(optimizer, Optimizer::Create(wire::OptimizerSpec()));  // keeps no state
  }
  std::unique_ptr<Partition> partition(
      new Partition(std::move(spec), value.checksum, std::move(optimizer)));
  const std::span<float> weights = partition->weights_.versions().MutableInitial();
  for (size_t first = 0; first < weights.size(); first += kBlockElements) {
    const size_t length = std::min(kBlockElements, weights.size() - first);
    Decode(value.format, value.payload.bytes(), weights.size(), first,
           weights.subspan(first, length));
  }
  return partition;
}

absl::Status Partition::Annotate(const absl::Status& status) const {
  if (status.ok()) return status;
  return Prefixed(status, DescribePartition(spec_.name, spec_.index));
}

absl::Status Partition::CheckRepeatedInit(const PartitionSpec& spec, uint64_t checksum) const {
  if (spec.elements != spec_.elements || spec.offset != spec_.offset || spec.dtype != spec_.dtype ||
      spec.name != spec_.name || spec.mode != spec_.mode || spec.staleness != spec_.staleness ||
      spec.combine != spec_.combine || spec.auxiliary != spec_.auxiliary) {
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
  SLIMPS_RETURN_IF_ERROR(CheckPushedRows(claimed, spec_.grid()));
  return hyper.has_value() ? ValidateHyper(*hyper) : absl::OkStatus();
}

absl::StatusOr<PushVerdict> Partition::Push(uint64_t round, uint32_t worker, size_t elements,
                                            ClaimedPayload claimed,
                                            std::shared_ptr<const ChangeCodec> change,
                                            std::optional<wire::Hyper> hyper, PushedAs pushed_as,
                                            std::span<const uint32_t> unmasked) {
  if (!IsWholeOrFirstRows(spec_, elements)) {
    return Annotate(absl::InvalidArgumentError(absl::StrCat(
        "worker ", worker, " pushes ", elements, " elements, expected ", spec_.elements)));
  }
  if (spec_.auxiliary && change != nullptr) {
    return Annotate(absl::InvalidArgumentError(
        absl::StrCat("push of worker ", worker, " asks for pulls by codec ",
                     change->codec->spec().ToString(), "; an auxiliary key is pulled as it is")));
  }
  absl::Status valid = CheckPush(elements, claimed, hyper);
  if (valid.ok() && pushed_as == PushedAs::kNothing &&
      (applies_at_once() || claimed.format != PayloadFormat::kAbsent)) {
    valid = absl::InvalidArgumentError(
        "carries a payload, or is no push of a round, and says that its worker takes no part");
  }
  if (valid.ok()) valid = CheckPushedAs(round, pushed_as, unmasked);
  if (valid.ok() && elements < spec_.elements) valid = MakeFirstRows(spec_, elements, &claimed);
  if (!valid.ok()) {
    return Annotate(Prefixed(valid, absl::StrCat("push of worker ", worker, " round ", round)));
  }
  absl::StatusOr<PushVerdict> verdict =
      applies_at_once()
          ? PushAtOnce(round, worker, std::move(claimed), change.get(), std::move(hyper))
          : rounds_.Push({.round = round,
                          .worker = worker,
                          .checksum = claimed.checksum,
                          .format = claimed.format,
                          .payload = std::move(claimed.payload),
                          .left_out = pushed_as == PushedAs::kNothing},
                         std::move(change), std::move(hyper), unmasked);
  if (!verdict.ok()) return Annotate(verdict.status());
  if (pushed_as == PushedAs::kClippedGradient && round > version()) clipped_.Clip(round);
  return verdict;
}

absl::Status Partition::CheckCanClip() const {
  const wire::OptimizerSpec::Kind kind = optimizer_.kind();
  if (spec_.mode == wire::DIST_SYNC && !spec_.auxiliary && spec_.combine == Combine::kSum &&
      kind != wire::OptimizerSpec::NONE && kind != wire::OptimizerSpec::ONEBIT_ADAM) {
    return absl::OkStatus();
  }
  return absl::FailedPreconditionError(absl::StrCat(
      "clipping by the gradient's norm: expected dist_sync and sgd, adam or adamw over sums of "
      "gradients, got ",
      wire::OptimizerSpec::Kind_Name(kind), " with ", wire::StoreMode_Name(spec_.mode),
      spec_.combine == Combine::kMajority ? " over majorities" : ""));
}

absl::StatusOr<PushVerdict> Partition::ScaleRound(uint64_t round, uint32_t worker, double scale) {
  absl::Status valid = CheckCanClip();
  if (round == 0 || !(scale >= 0 && scale <= 1)) {
    valid.Update(absl::InvalidArgumentError(
        absl::StrCat("expected a scale of 0 to 1 and a round from 1, got ", scale)));
  } else if (round > version() + spec_.rounds_ahead) {
    valid.Update(absl::ResourceExhaustedError(
        absl::StrCat("at most round ", version() + spec_.rounds_ahead, " is scaled now")));
  } else if (valid.ok() && (round > version() || clipped_.Scale(round).has_value())) {
    valid = clipped_.SetScale(round, scale);
  }
  if (valid.ok()) return round > version() ? PushVerdict::kAccepted : PushVerdict::kDuplicate;
  return Annotate(
      Prefixed(valid, absl::StrCat("gradient scale of worker ", worker, " for round ", round)));
}

absl::Status Partition::CheckPushedAs(uint64_t round, PushedAs pushed_as,
                                      std::span<const uint32_t> unmasked) const {
  if (pushed_as == PushedAs::kClippedGradient) SLIMPS_RETURN_IF_ERROR(CheckCanClip());
  const bool momentum = pushed_as == PushedAs::kMomentum;
  if (!unmasked.empty() &&
      (!momentum || unmasked.size() > 2 * kMaxUnmaskedRuns || !AreRuns(unmasked, spec_.elements))) {
    return absl::InvalidArgumentError(absl::StrCat(
        "unmasks ", unmasked.size(), " numbers, expected a momentum with rising runs, at most ",
        kMaxUnmaskedRuns, ", of ", spec_.elements, " elements"));
  }
  if (optimizer_.kind() != wire::OptimizerSpec::ONEBIT_ADAM) {
    if (!momentum) return absl::OkStatus();
    return absl::FailedPreconditionError("carries a momentum, expected a gradient");
  }
  if (applies_at_once()) {
    return absl::FailedPreconditionError("onebit_adam expects dist_sync, whose rounds are common");
  }
  if (round <= version()) return absl::OkStatus();  // counted before
  if (round > version() + 1) {
    return absl::ResourceExhaustedError(
        absl::StrCat("onebit_adam takes round ", version() + 1, " next"));
  }
  if (momentum == optimizer_.frozen() || pushed_as == PushedAs::kNothing) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(
      "carries a ", momentum ? "momentum" : "gradient", ", and onebit_adam expects a ",
      momentum ? "gradient" : "momentum",
      "; set the optimizer on every worker, and pull each round before the next push"));
}

absl::StatusOr<PushVerdict> Partition::PushAtOnce(uint64_t sequence, uint32_t worker,
                                                  ClaimedPayload claimed, const ChangeCodec* change,
                                                  std::optional<wire::Hyper> hyper) {
  if (change != nullptr) {
    return absl::InvalidArgumentError(absl::StrCat(
        "push of worker ", worker, " asks for pulls by codec ", change->codec->spec().ToString(),
        ", which needs dist_sync; here each worker pulls versions of its own"));
  }
  if (optimizer_.kind() == wire::OptimizerSpec::NONE) return NeedsOptimizer(spec_.mode);
  // Allocates before the push counts, so that nothing can fail afterwards.
  const MasterWeights::Next next = weights_.BeginNext(nullptr);
  SLIMPS_ASSIGN_OR_RETURN(const PushVerdict verdict,
                          sequences_.Push(sequence, worker, claimed.checksum));
  if (verdict == PushVerdict::kDuplicate) return verdict;
  const Contribution contribution = {.format = claimed.format,
                                     .payload = std::move(claimed.payload)};
  Apply(Gather({&contribution, 1}), std::move(hyper), next);
  return verdict;
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

void Partition::SetAway(uint32_t worker) {
  if (spec_.mode == wire::DIST_SYNC) {
    rounds_.SetAway(worker);
  } else if (spec_.mode == wire::DIST_SSP) {
    // It never comes back to this mode. What it has pushed stays.
    sequences_.Leave(worker, 0).IgnoreError();
  }
}

void Partition::SetOptimizer(std::shared_ptr<const Optimizer> optimizer) {
  if (!spec_.auxiliary) optimizer_.Replace(std::move(optimizer));
}

void Partition::MeasureNextRound() {
  const TraceSpan span(TraceStage::kAggregate, {spec_.name, spec_.index, version() + 1});
  rounds_.CloseNext();
  const std::vector<Contribution> contributions = rounds_.ledger().Prefix();
  const uint32_t contributors = std::max(1u, Gather(contributions));
  const double scale = optimizer_.ScaleOfSum(contributors);
  clipped_.NoteNorm(version() + 1, SquaresOfSum(views_, spec_.elements) * scale * scale);
}

absl::StatusOr<double> Partition::Norm2(uint64_t round) const {
  if (!weights_.versions().Holds(round) && round <= version()) return CheckHeld(round);
  return clipped_.Norm2(round).value_or(0);
}

void Partition::ApplyNextRound() {
  OpenRounds::Round round = rounds_.TakeNext();
  const uint32_t contributors = Gather(round.contributions);
  // A step that is skipped is one to which no worker has a gradient.
  if (clipped_.Scale(version() + 1) == 0) views_.clear();
  if (optimizer_.frozen()) return ApplyMomenta(contributors, std::move(round.choice));
  std::shared_ptr<const ChangeCodec>& codec = round.choice.codec;
  // Until its variance is frozen, 1-bit Adam is Adam without compression.
  if (optimizer_.kind() == wire::OptimizerSpec::ONEBIT_ADAM && codec != nullptr &&
      codec->encodes_change()) {
    codec = nullptr;
  }
  if (codec == nullptr && AnswerByLanes()) return;
  const MasterWeights::Next next = weights_.BeginNext(std::move(codec));
  Apply(contributors, std::move(round.choice.hyper), next);
}

uint32_t Partition::Gather(std::span<const Contribution> contributions) {
  views_.clear();
  const size_t folded = rounds_.partial().contributors();
  rounds_.partial().AppendViews(&views_);
  for (const Contribution& one : contributions) {
    views_.push_back({.format = one.format, .bytes = one.payload.bytes()});
  }
  return static_cast<uint32_t>(folded + contributions.size());
}

bool Partition::AnswerByLanes() {
  if (optimizer_.kind() != wire::OptimizerSpec::NONE || spec_.auxiliary ||
      spec_.combine != Combine::kSum || spec_.dtype != wire::FLOAT32) {
    return false;
  }
  std::erase_if(views_,
                [](const PayloadView& one) { return one.format == PayloadFormat::kAbsent; });
  if (views_.empty() || LanesRun(views_) != views_.size() || !LanesSumIsFinite(views_)) {
    return false;
  }
  const size_t bytes = LanesSumBytes(views_);
  if (bytes >= spec_.elements * sizeof(float)) return false;  // a few elements with their padding
  const TraceSpan span(TraceStage::kAggregate, {spec_.name, spec_.index, version() + 1});
  BuildLanesSum(BestKernels(), views_, weights_.BeginEncoded(bytes));
  rounds_.ClearPartial();
  weights_.CommitEncoded({.format = PayloadFormat::kRotated, .bytes = bytes});
  return true;
}

void Partition::ApplyMomenta(uint32_t contributors, OpenRounds::Choice choice) {
  const TraceSpan span(TraceStage::kAggregate, {spec_.name, spec_.index, version() + 1});
  const ChangeCodec* const codec = choice.codec.get();
  const MasterWeights::NextByMomentum next =
      weights_.BeginByMomentum(optimizer_.MomentumBytes(codec));
  const EncodedChange answer = optimizer_.StepMomentum(
      {.payloads = views_,
       .before = next.before,
       .after = next.after,
       .codec = codec,
       .context = weights_.ChangeContext(),
       .payload = next.answer,
       .unmasked = choice.unmasked},
      {.round = version() + 1, .contributors = contributors, .hyper = std::move(choice.hyper)});
  rounds_.ClearPartial();
  weights_.CommitByMomentum(answer);
}

void Partition::Apply(uint32_t contributors, std::optional<wire::Hyper> hyper,
                      const MasterWeights::Next& next) {
  const TraceSpan span(TraceStage::kAggregate, {spec_.name, spec_.index, version() + 1});
  if (spec_.auxiliary) {
    CombineRound({.payloads = views_,
                  .combine = spec_.combine,
                  .round = version() + 1,
                  .row_elements = spec_.row_elements},
                 next.after);
  } else {
    StepRound(contributors, std::move(hyper), next);
  }
  rounds_.ClearPartial();
  weights_.Commit();
  clipped_.Applied(version());
}

void Partition::StepRound(uint32_t contributors, std::optional<wire::Hyper> hyper,
                          const MasterWeights::Next& next) {
  // A majority is one vote, however many workers gave it, so there is nothing to average.
  const bool summed = spec_.combine == Combine::kSum;
  optimizer_.Step({.payloads = views_,
                   .combine = spec_.combine,
                   .before = next.before,
                   .after = next.after,
                   .change = next.change},
                  {.round = version() + 1,
                   .contributors = summed ? contributors : 1,
                   .gradient_scale = clipped_.Scale(version() + 1).value_or(1),
                   .hyper = std::move(hyper)});
}

absl::Status Partition::CheckHeld(uint64_t version) const {
  if (weights_.versions().Holds(version)) return absl::OkStatus();
  return Annotate(absl::FailedPreconditionError(
      absl::StrCat("version ", version, " wanted, which is gone; ", this->version(),
                   " is the current one, and at most the one before it is held")));
}

WireValue Partition::Share(uint64_t wanted, std::optional<uint64_t> held) {
  WireValue value = weights_.versions().Share(wanted, held);
  if (spec_.auxiliary) value.contributors = rounds_.ledger().Contributors(wanted);
  return value;
}

WireValue Partition::ShareRows(uint64_t wanted, std::span<const uint32_t> rows) {
  return CopyRows(spec_, wanted, rows, &weights_.versions());
}

WireValue Partition::ShareState(wire::OptimizerState* state) const {
  return optimizer_.Share(version(), state);
}

absl::Status Partition::PutState(const wire::OptimizerState& state, const ClaimedPayload& value) {
  return Annotate(optimizer_.Put(state, value));
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
  const std::vector<uint32_t> missing = rounds_.ledger().MissingFromNextRound();
  if (missing.empty() && clipped_.AwaitsScale(version() + 1)) {
    return absl::StrCat(text, "; round ", version() + 1,
                        " waits for the norm of the whole gradient, which has keys that lack "
                        "pushes");
  }
  if (missing.empty()) return absl::StrCat(text, "; every worker has left");
  return absl::StrCat(text, "; round ", rounds_.ledger().version() + 1, " lacks the push of ",
                      DescribeWorkers(missing));
}

absl::Status Partition::CheckComes(const std::set<uint32_t>& ended, uint64_t wanted,
                                   uint64_t clock) const {
  for (const uint32_t worker : ended) {
    const bool waits = applies_at_once() ? sequences_.IsBelow(worker, clock)
                                         : rounds_.ledger().AwaitsUpTo(worker, wanted);
    if (!waits) continue;
    const uint64_t last =
        applies_at_once() ? sequences_.CountedUpTo(worker) : rounds_.ledger().CountedUpTo(worker);
    return Annotate(absl::FailedPreconditionError(absl::StrCat(
        "round ", last + 1, " waits for the push of worker ", worker,
        ", which has ended after its round ", last,
        ": a worker whose data is used up calls leave() before it ends, and one that lacks a batch "
        "calls skip_step()")));
  }
  return absl::OkStatus();
}

absl::Status Partition::CheckPushComes(const std::set<uint32_t>& ended, uint64_t round) const {
  if (spec_.mode != wire::DIST_SSP) return CheckComes(ended, round, /*clock=*/0);
  const uint64_t ahead = uint64_t{spec_.staleness} + 1;
  return CheckComes(ended, /*wanted=*/0, round > ahead ? round - ahead : 0);
}

PartitionImage Partition::Save(ImageUse use) const {
  PartitionImage image;
  *image.fields.mutable_spec() = SaveSpec(spec_);
  image.fields.set_init_checksum(init_checksum_);
  weights_.Save(use, image.fields.mutable_weights(), &image);
  optimizer_.Save(image.fields.mutable_optimizer(), &image);
  rounds_.Save(image.fields.mutable_rounds(), &image);
  sequences_.Save(image.fields.mutable_sequences());
  clipped_.Save(&image.fields);
  return image;
}

absl::StatusOr<std::unique_ptr<Partition>> Partition::Restore(const PartitionImage& image,
                                                              std::shared_ptr<WaitingBytes> waiting,
                                                              ChangeCodecs* codecs) {
  SLIMPS_ASSIGN_OR_RETURN(PartitionSpec spec, RestoreSpec(image.fields.spec(), std::move(waiting)));
  return Restore(image, std::move(spec), image.fields.init_checksum(), codecs);
}

absl::Status Partition::CheckAlike(const saved::Spec& spec) const {
  const std::string expected = DescribeSpec(SaveSpec(spec_));
  const std::string got = DescribeSpec(spec);
  if (got == expected) return absl::OkStatus();
  return Annotate(absl::InvalidArgumentError(
      absl::StrCat("expected the state of one with ", expected, ", got one with ", got)));
}

absl::StatusOr<std::unique_ptr<Partition>> Partition::Successor(const PartitionImage& image,
                                                                ChangeCodecs* codecs) const {
  SLIMPS_RETURN_IF_ERROR(CheckAlike(image.fields.spec()));
  SLIMPS_ASSIGN_OR_RETURN(std::unique_ptr<Partition> partition,
                          Restore(image, spec_, init_checksum_, codecs));
  partition->optimizer_.TakeLoads(optimizer_);
  return partition;
}

absl::StatusOr<std::unique_ptr<Partition>> Partition::Restore(const PartitionImage& image,
                                                              PartitionSpec spec, uint64_t checksum,
                                                              ChangeCodecs* codecs) {
  const saved::Partition& fields = image.fields;
  // Its optimizer comes with its state, below.
  SLIMPS_ASSIGN_OR_RETURN(std::shared_ptr<const Optimizer> none,
                          Optimizer::Create(wire::OptimizerSpec()));
  std::unique_ptr<Partition> partition(new Partition(std::move(spec), checksum, std::move(none)));
  absl::Status restored = partition->weights_.Restore(fields.weights(), image);
  restored.Update(partition->optimizer_.Restore(fields.optimizer(), image));
  restored.Update(partition->rounds_.Restore(fields.rounds(), image, codecs));
  restored.Update(partition->sequences_.Restore(fields.sequences()));
  partition->clipped_.Restore(fields);
  if (partition->version() != partition->rounds_.ledger().version() &&
      !partition->applies_at_once()) {
    restored.Update(BadImage(absl::StrCat("version ", partition->version(), " after round ",
                                          partition->rounds_.ledger().version())));
  }
  SLIMPS_RETURN_IF_ERROR(partition->Annotate(restored));
  return partition;
}

absl::StatusOr<wire::Standing> Partition::StandingOf(uint32_t worker) const {
  if (!applies_at_once()) {
    wire::Standing standing = rounds_.ledger().StandingOf(worker);
    standing.set_optimizer(optimizer_.kind());
    return standing;
  }
  return Annotate(absl::FailedPreconditionError(absl::StrCat(
      "worker ", worker, " cannot come back to a store of mode ", wire::StoreMode_Name(spec_.mode),
      ", expected DIST_SYNC: others count no rounds")));
}

uint64_t Partition::CountedUpTo(uint32_t worker) const {
  if (applies_at_once()) return sequences_.CountedUpTo(worker);
  return clipped_.ScaledUpTo(version(), rounds_.ledger().CountedUpTo(worker));
}

}  // namespace slimps
