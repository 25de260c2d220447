// SPDX-License-Identifier: Apache-2.0
#include "server/shard/shard_state.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "compress/format/rows.h"
#include "proto/base/clock.h"
#include "proto/base/out_of_memory.h"
#include "proto/base/simulation/mutant.h"
#include "proto/base/status_copy.h"
#include "proto/base/status_macros.h"
#include "proto/net/send_priority.h"
#include "server/round/partition_rows.h"

namespace slimps {
namespace {

std::string DescribeUnknown(const wire::ItemId& id) {
  return absl::StrCat("key ", absl::Hex(id.key(), absl::kZeroPad16), " partition ", id.partition());
}

std::string NameOf(const Partition& partition) {
  return DescribePartition(partition.spec().name, partition.spec().index);
}

// Returns the version that answers a pull whose turn has come. Without rounds in common, workers'
// version numbers mean nothing to each other, so the current version answers.
uint64_t VersionFor(const Partition& partition, const wire::PullItem& item) {
  const bool newest = item.newest() || partition.applies_at_once();
  return newest || simulation::Is(Mutant::kAnyVersionAnswers) ? partition.version()
                                                              : item.min_version();
}

// Returns the newest version that the pull need not wait for.
uint64_t ReadyUpTo(const Partition& partition, const wire::PullItem& item) {
  return item.norm() ? partition.measured() : partition.version();
}

PartitionId IdOf(const wire::ItemId& id) { return {.key = id.key(), .index = id.partition()}; }

}  // namespace

size_t ShardItems::PayloadBytes() const {
  size_t bytes = 0;
  for (const InitWork& init : inits) bytes += init.value.payload.size();
  for (const PushWork& push : pushes) bytes += push.payload.size();
  return bytes;
}

ShardState::ShardState(std::shared_ptr<const Optimizer> optimizer, const Clock* clock,
                       size_t max_copied_bytes)
    : clock_(clock),
      max_copied_bytes_(max_copied_bytes),
      optimizer_(std::move(optimizer)),
      change_codecs_(clock),
      figures_(clock) {}

void ShardState::HandleItems(ShardItems items) {
  const Origin& origin = items.origin;
  for (InitWork& init : items.inits) {
    const wire::ItemId id = init.id;
    std::optional<wire::Standing> standing;
    const absl::Status status =
        init.asks_standing ? Stand(id, origin.worker, &standing) : HandleInit(std::move(init));
    outbox_.AddInit(origin, id, status, DurableOf(id, origin.worker), std::move(standing));
  }
  for (PushWork& push : items.pushes) {
    const wire::ItemId id = push.item.id();
    const absl::StatusOr<uint64_t> decode_ns = HandlePush(origin.worker, std::move(push));
    outbox_.AddPush(origin, id, decode_ns.status(), decode_ns.value_or(0),
                    DurableOf(id, origin.worker));
  }
  for (PullWork& pull : items.pulls) HandlePull(origin, std::move(pull));
}

std::vector<Reply> ShardState::TakeReplies() {
  outbox_.Flush();
  copied_bytes_ = 0;
  return outbox_.Take();
}

absl::Status ShardState::HandleInit(InitWork work) {
  Slot& slot = slots_[IdOf(work.id)];
  if (work.state.has_value()) {
    if (slot.partition == nullptr) {
      return absl::NotFoundError(absl::StrCat(DescribeUnknown(work.id), ": never initialised"));
    }
    // Applies what was acknowledged before, so that no earlier round steps the state that is put.
    Settle(slot);
    if (!failure_.ok()) return failure_;
    return slot.partition->PutState(*work.state, work.value);
  }
  if (slot.partition != nullptr) {
    return slot.partition->CheckRepeatedInit(work.spec, work.value.checksum);
  }
  const auto create = [&] {
    if (slot.wait == nullptr) {
      slot.wait = figures_.AddPartition(work.spec.name, work.spec.num_workers);
    }
    return Partition::Create(work.spec, work.value, optimizer_);
  };
  SLIMPS_ASSIGN_OR_RETURN(slot.partition, OrOutOfMemory(create, "weights", work.spec.name));
  for (const auto& [worker, from_round] : leaves_) {
    SLIMPS_RETURN_IF_ERROR(slot.partition->Leave(worker, from_round));
  }
  for (const uint32_t worker : away_) slot.partition->SetAway(worker);
  AnswerReady(slot);
  return absl::OkStatus();
}

absl::StatusOr<uint64_t> ShardState::HandlePush(uint32_t worker, PushWork work) {
  const wire::PushItem& item = work.item;
  if (!failure_.ok()) return failure_;
  const auto found = slots_.find(IdOf(item.id()));
  if (found == slots_.end() || found->second.partition == nullptr) {
    return absl::NotFoundError(absl::StrCat(DescribeUnknown(item.id()), ": never initialised"));
  }
  Slot& slot = found->second;
  Settle(slot);
  Partition& partition = *slot.partition;
  SLIMPS_ASSIGN_OR_RETURN(const PayloadFormat format, FormatFromWire(item.format()));
  absl::StatusOr<std::shared_ptr<const ChangeCodec>> change =
      change_codecs_.Find(item.change_codec());
  if (!change.ok()) {
    return Prefixed(change.status(), absl::StrCat(NameOf(partition), ": push of worker ", worker,
                                                  " round ", item.round()));
  }
  if (item.has_gradient_scale()) {
    const auto scale = [&] {
      return partition.ScaleRound(item.round(), worker, item.gradient_scale());
    };
    SLIMPS_RETURN_IF_ERROR(SayingWhatFor("a push", partition.spec().name, scale).status());
    QueueComplete(slot);
    return 0;
  }
  const SteadyTime start = partition.applies_at_once() ? clock_->Now() : SteadyTime();
  const auto push = [&] {
    return partition.Push(
        item.round(), worker, item.elements(),
        {.format = format, .payload = work.payload, .checksum = item.payload_hash()},
        *std::move(change), item.has_hyper() ? std::optional(item.hyper()) : std::nullopt,
        item.left_out()   ? PushedAs::kNothing
        : item.clipped()  ? PushedAs::kClippedGradient
        : item.momentum() ? PushedAs::kMomentum
                          : PushedAs::kGradient,
        {item.unmasked().data(), static_cast<size_t>(item.unmasked_size())});
  };
  const absl::StatusOr<PushVerdict> pushed = SayingWhatFor("a push", partition.spec().name, push);
  if (absl::IsResourceExhausted(pushed.status())) {
    SLIMPS_RETURN_IF_ERROR(partition.CheckPushComes(ended_, item.round()));
  }
  SLIMPS_ASSIGN_OR_RETURN(const PushVerdict verdict, pushed);
  if (verdict == PushVerdict::kAccepted) {
    figures_.CountPush(format, work.payload.size());
    if (!item.left_out()) slot.priority = item.priority();
    if (partition.applies_at_once()) {
      figures_.CountRound(clock_->Now() - start);
      AnswerReady(slot);
    }
    // Another worker's push changes nothing for the workers that lack.
    if (partition.applies_at_once() ||
        !figures_.NotePush(slot.wait, partition.version() + 1, worker,
                           partition.WaitsFor(worker, /*clock=*/0))) {
      NoteWait(slot);
    }
    QueueComplete(slot);
  } else {
    figures_.CountRepeat();
  }
  return item.profile() ? MeasureDecode(format, work.payload, item.elements()) : 0;
}

uint64_t ShardState::MeasureDecode(PayloadFormat format, const Payload& payload,
                                   size_t elements) const {
  // Raw payloads cost nothing beyond the sum, which every push needs.
  if (!IsEncoded(format)) return 0;
  alignas(kBufferAlignment) std::array<float, kBlockElements> scratch;
  const SteadyTime start = clock_->Now();
  for (size_t first = 0; first < elements; first += kBlockElements) {
    const size_t length = std::min(kBlockElements, elements - first);
    Decode(format, payload.bytes(), elements, first, std::span<float>(scratch).first(length));
  }
  return static_cast<uint64_t>(
      std::max<int64_t>(0, absl::ToInt64Nanoseconds(clock_->Now() - start)));
}

absl::Status ShardState::CheckPullNow(const Slot& slot, const wire::PullItem& item) const {
  if (slot.partition == nullptr) {
    if (item.min_version() == 0) return absl::OkStatus();
    return absl::NotFoundError(absl::StrCat(DescribeUnknown(item.id()), ": never initialised"));
  }
  const PartitionSpec& spec = slot.partition->spec();
  if (!IsWholeOrFirstRows(spec, item.elements())) {
    return absl::InvalidArgumentError(absl::StrCat(NameOf(*slot.partition), ": pull of ",
                                                   item.elements(), " elements, expected ",
                                                   spec.elements));
  }
  if (!item.rows_only()) return absl::OkStatus();
  return Prefixed(ParsePulledRows(item.rows(), spec.grid()).status(), NameOf(*slot.partition));
}

absl::Status ShardState::CheckComes(const Slot& slot, const WaitingPull& pull) const {
  if (slot.partition != nullptr) {
    return slot.partition->CheckComes(ended_, pull.item.min_version(), pull.clock);
  }
  if (!ended_.contains(0)) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(
      DescribeUnknown(pull.item.id()), ": worker 0 has ended and has not initialised it"));
}

void ShardState::HandlePull(const Origin& origin, PullWork work) {
  Slot& slot = slots_[IdOf(work.item.id())];
  absl::Status now = CheckPullNow(slot, work.item);
  const bool of_state = work.item.state_tensor() > 0;
  if (now.ok() && of_state && slot.partition != nullptr) {
    Settle(slot);
    now = failure_;
  }
  if (!now.ok()) {
    outbox_.AddPullError(origin, work.item, now);
    return;
  }
  WaitingPull pull{.origin = origin, .item = std::move(work.item), .deadline = work.deadline};
  if (slot.partition != nullptr) {
    // Workers pull state together, once their pushes are counted. However far apart they are, none
    // waits for another.
    if (!of_state) pull.clock = slot.partition->ReadsFrom(origin.worker);
    if (ReadyUpTo(*slot.partition, pull.item) >= pull.item.min_version() &&
        slot.partition->slowest() >= pull.clock) {
      const absl::Status room = Answer(slot, pull, CopyRoom::kBounded);
      if (!room.ok()) outbox_.AddPullError(origin, pull.item, room);
      return;
    }
  }
  const SteadyTime deadline = pull.deadline;
  absl::Status queued = failure_;
  if (queued.ok()) queued = CheckComes(slot, pull);
  if (queued.ok()) queued = slot.pulls.Add(std::move(pull));
  if (!queued.ok()) {
    // NOLINTNEXTLINE(bugprone-use-after-move): a refused pull was not moved
    outbox_.AddPullError(origin, pull.item, queued);
    return;
  }
  next_deadline_ = std::min(next_deadline_, deadline);
  if (slot.partition != nullptr && slot.partition->applies_at_once()) NoteWait(slot);
}

absl::Status ShardState::Answer(Slot& slot, const WaitingPull& pull, CopyRoom room) {
  // A pull that waited for Init could not be checked before.
  const absl::Status valid = CheckPullNow(slot, pull.item);
  if (!valid.ok()) {
    outbox_.AddPullError(pull.origin, pull.item, valid);
    return absl::OkStatus();
  }
  std::optional<uint64_t> held;
  if (pull.item.takes_change()) held = pull.item.held_version();
  const PartitionSpec& spec = slot.partition->spec();
  const size_t item_elements = pull.item.elements();
  if (pull.item.state_tensor() > 0) return AnswerWithCopy(*slot.partition, pull, room);
  if (pull.item.norm()) {
    AnswerNorm(*slot.partition, pull);
    return absl::OkStatus();
  }
  const uint64_t version = VersionFor(*slot.partition, pull.item);
  const absl::Status has_it = slot.partition->CheckHeld(version);
  if (!has_it.ok()) {
    outbox_.AddPullError(pull.origin, pull.item, has_it);
    return absl::OkStatus();
  }
  if (pull.item.rows_only()) return AnswerWithCopy(*slot.partition, pull, room);
  const auto share = [&] {
    return FirstOf(spec, item_elements, slot.partition->Share(version, held));
  };
  absl::StatusOr<WireValue> value = OrOutOfMemory(share, "weights", spec.name);
  if (value.ok()) {
    outbox_.TraceNextPull(pull.origin, {spec.name, spec.index, value->version});
    const uint64_t answered = value->version;
    figures_.CountAnswer(value->format, value->payload.size());
    outbox_.AddPull(pull.origin, pull.item, item_elements, *std::move(value),
                    {.momentum = slot.partition->MomentumOf(answered)});
  } else {
    outbox_.AddPullError(pull.origin, pull.item, value.status());
  }
  return absl::OkStatus();
}

void ShardState::AnswerNorm(const Partition& partition, const WaitingPull& pull) {
  const absl::StatusOr<double> norm2 = partition.Norm2(pull.item.min_version());
  if (!norm2.ok()) return outbox_.AddPullError(pull.origin, pull.item, norm2.status());
  OptimizerAnswer answer;
  if (std::isfinite(*norm2)) answer.norm2 = *norm2;
  outbox_.AddPull(pull.origin, pull.item, pull.item.elements(),
                  {.version = pull.item.min_version(), .format = PayloadFormat::kAbsent},
                  std::move(answer));
}

absl::Status ShardState::CheckRoomForCopy(const Partition& partition, size_t elements) const {
  const size_t most = max_copied_bytes_ / sizeof(float), waiting = copied_bytes_ / sizeof(float);
  if (waiting == 0 || (waiting <= most && elements <= most - waiting)) return absl::OkStatus();
  return absl::ResourceExhaustedError(absl::StrCat(NameOf(partition), ": a copy of ", elements,
                                                   " elements, while copies of ", waiting,
                                                   " of at most ", most, " wait to be sent"));
}

// Answers with rows or state. Whole weights are lent, but these must be copied.
absl::Status ShardState::AnswerWithCopy(Partition& partition, const WaitingPull& pull,
                                        CopyRoom room) {
  const PartitionSpec& spec = partition.spec();
  const bool of_state = pull.item.state_tensor() > 0;
  std::vector<uint32_t> rows;
  // CheckPullNow has parsed the same rows, so this cannot fail.
  if (!of_state) rows = ParsePulledRows(pull.item.rows(), spec.grid()).value();
  const size_t elements = of_state ? spec.elements : ElementsOfRows(spec.grid(), rows);
  if (room == CopyRoom::kBounded) {
    SLIMPS_RETURN_IF_ERROR(CheckRoomForCopy(partition, elements));
  }
  wire::OptimizerState state;
  state.set_tensor(pull.item.state_tensor());
  const auto copy = [&] {
    return of_state ? partition.ShareState(&state)
                    : partition.ShareRows(VersionFor(partition, pull.item), rows);
  };
  absl::StatusOr<WireValue> value = OrOutOfMemory(copy, "a copy of rows or state", spec.name);
  if (!value.ok()) {
    outbox_.AddPullError(pull.origin, pull.item, value.status());
    return absl::OkStatus();
  }
  const size_t bytes = value->payload.size();
  figures_.CountAnswer(value->format, bytes);
  OptimizerAnswer optimizer;
  if (of_state) optimizer = {.state = state, .momentum = partition.MomentumOf(value->version)};
  outbox_.AddPull(pull.origin, pull.item, elements, *std::move(value), std::move(optimizer));
  copied_bytes_ += bytes;
  return absl::OkStatus();
}

void ShardState::AnswerReady(Slot& slot) {
  const Partition& partition = *slot.partition;
  bool puts_off = false;
  for (WaitingPull& pull :
       slot.pulls.TakeReady(partition.version(), partition.slowest(), partition.measured())) {
    if (Answer(slot, pull, CopyRoom::kBounded).ok()) continue;
    slot.pulls.PutBack(std::move(pull));
    puts_off = true;
  }
  if (puts_off) put_off_.push_back(&slot);
}

void ShardState::AnswerLast(Slot& slot) {
  const Partition& partition = *slot.partition;
  if (partition.applies_at_once() || slot.pulls.size() == 0) return;
  for (WaitingPull& pull : slot.pulls.TakeReady(partition.version(), partition.slowest())) {
    if (VersionFor(partition, pull.item) < partition.version()) {
      Answer(slot, pull, CopyRoom::kAnyway).IgnoreError();  // kAnyway: always room
    } else {
      slot.pulls.PutBack(std::move(pull));
    }
  }
}

bool ShardState::AnswerPutOff() {
  const std::vector<Slot*> put_off = std::exchange(put_off_, {});
  for (Slot* slot : put_off) AnswerReady(*slot);
  return !put_off.empty();
}

void ShardState::NoteCompletion(Slot& slot) {
  NoteWait(slot);
  QueueComplete(slot);
}

void ShardState::QueueComplete(Slot& slot) {
  // After a failure no round is applied any more.
  if (slot.complete.has_value() || !failure_.ok() || !slot.partition->HasCompleteRound()) return;
  const Turn turn(-SendPriority(slot.partition->version() + 1, slot.priority), next_turn_++);
  complete_.emplace(turn, &slot);
  slot.complete = turn;
}

size_t ShardState::NextRoundBytes() const {
  if (complete_.empty()) return 0;
  return complete_.begin()->second->partition->spec().elements * sizeof(float);
}

void ShardState::ApplyOne() {
  Slot& slot = *complete_.begin()->second;
  complete_.erase(complete_.begin());
  slot.complete.reset();
  ApplyNextRound(slot);
  QueueComplete(slot);
}

void ShardState::Settle(Slot& slot) {
  if (!slot.complete.has_value()) return;
  complete_.erase(*slot.complete);
  slot.complete.reset();
  while (failure_.ok() && slot.partition->HasCompleteRound()) ApplyNextRound(slot);
}

void ShardState::ApplyNextRound(Slot& slot) {
  if (slot.partition->MustMeasureNext()) {
    SayingWhatFor("a round's norm", slot.partition->spec().name,
                  [&] { slot.partition->MeasureNextRound(); });
    return AnswerReady(slot);
  }
  AnswerLast(slot);
  const SteadyTime start = clock_->Now();
  SayingWhatFor("a round", slot.partition->spec().name, [&] { slot.partition->ApplyNextRound(); });
  figures_.CountRound(clock_->Now() - start);
  NoteWait(slot);
  if (simulation::Is(Mutant::kForgetWaitingPull)) return;
  AnswerReady(slot);  // after each round: a waiting pull gets exactly the version that it names
}

void ShardState::Fail(const absl::Status& why) {
  if (!failure_.ok()) return;
  failure_ = why;
  for (auto& [id, slot] : slots_) {
    for (const WaitingPull& pull : slot.pulls.TakeAll()) {
      outbox_.AddPullError(pull.origin, pull.item, why);
    }
  }
}

void ShardState::ExpirePulls() {
  const SteadyTime now = clock_->Now();
  if (now < next_deadline_) return;
  next_deadline_ = SteadyTime::InfiniteFuture();
  for (auto& [id, slot] : slots_) {
    for (const WaitingPull& pull : slot.pulls.TakeExpired(now)) {
      outbox_.AddPullError(
          pull.origin, pull.item,
          slot.partition != nullptr
              ? absl::DeadlineExceededError(
                    slot.partition->DescribeWait(pull.item.min_version(), pull.clock))
              : absl::NotFoundError(absl::StrCat(DescribeUnknown(pull.item.id()),
                                                 ": worker 0 has not initialised it in time")));
    }
    next_deadline_ = std::min(next_deadline_, slot.pulls.NextDeadline());
    if (slot.partition != nullptr && slot.partition->applies_at_once()) NoteWait(slot);
  }
}

}  // namespace slimps
