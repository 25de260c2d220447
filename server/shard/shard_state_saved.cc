// SPDX-License-Identifier: Apache-2.0
// What a shard's state does beside items and rounds: the optimizer, workers that leave or come
// back, snapshots, checkpoints, and what it tells those who watch.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/base/out_of_memory.h"
#include "proto/base/simulation/mutant.h"
#include "proto/base/status_macros.h"
#include "server/shard/shard_state.h"

namespace slimps {
namespace {

// True if both are the same stretch of a key, and the key has as many partitions.
bool IsCutAlike(const saved::Spec& a, const saved::Spec& b) {
  return a.item().id().partition() == b.item().id().partition() &&
         a.item().offset() == b.item().offset() && a.item().elements() == b.item().elements() &&
         a.item().partitions() == b.item().partitions();
}

// Returns `other`, as if its key were cut as that of `spec`.
saved::Spec WithCutOf(const saved::Spec& spec, saved::Spec other) {
  wire::InitItem& item = *other.mutable_item();
  item.mutable_id()->set_partition(spec.item().id().partition());
  item.set_offset(spec.item().offset());
  item.set_elements(spec.item().elements());
  item.set_partitions(spec.item().partitions());
  return other;
}

std::vector<uint64_t> CountedBy(const Partition& partition) {
  std::vector<uint64_t> counted(partition.spec().num_workers);
  for (uint32_t worker = 0; worker < counted.size(); ++worker) {
    counted[worker] = partition.CountedUpTo(worker);
  }
  return counted;
}

}  // namespace

absl::Status ShardState::Stand(const wire::ItemId& id, uint32_t worker,
                               std::optional<wire::Standing>* standing) {
  const auto found = slots_.find({.key = id.key(), .index = id.partition()});
  if (found == slots_.end() || found->second.partition == nullptr) {
    return absl::NotFoundError("asked where it stands, but it was never initialised");
  }
  Slot& slot = found->second;
  Settle(slot);  // what is complete without it stays so
  slot.partition->Return(worker);
  NoteWait(slot);
  SLIMPS_ASSIGN_OR_RETURN(*standing, slot.partition->StandingOf(worker));
  return absl::OkStatus();
}

void ShardState::NoteWait(const Slot& slot) {
  const Partition& partition = *slot.partition;
  const bool at_once = partition.applies_at_once();
  const uint64_t clock = at_once ? slot.pulls.HighestClock() : 0;
  if (at_once ? clock <= partition.slowest() : !partition.NextRoundBegun()) {
    return figures_.Close(slot.wait);
  }
  figures_.Open(slot.wait, at_once ? clock : partition.version() + 1,
                [&](uint32_t worker) { return partition.WaitsFor(worker, clock); });
}

absl::Status ShardState::SetOptimizer(std::shared_ptr<const Optimizer> optimizer) {
  while (HasCompleteRound()) ApplyOne();
  absl::Status first_error;
  for (auto& [id, held] : slots_) {
    Slot& slot = held;
    if (slot.partition == nullptr) continue;
    const auto set = [&] {
      slot.partition->SetOptimizer(optimizer);
      return absl::OkStatus();
    };
    first_error.Update(OrOutOfMemory(set, "optimizer state", slot.partition->spec().name));
  }
  if (first_error.ok()) optimizer_ = std::move(optimizer);
  return first_error;
}

absl::Status ShardState::Leave(uint32_t worker, uint64_t from_round) {
  absl::Status first_error;
  for (auto& [id, slot] : slots_) {
    if (slot.partition == nullptr) continue;
    first_error.Update(slot.partition->Leave(worker, from_round));
    if (slot.partition->applies_at_once()) AnswerReady(slot);
    NoteCompletion(slot);
  }
  if (first_error.ok()) {
    uint64_t& from = leaves_.try_emplace(worker, from_round).first->second;
    from = std::min(from, from_round);
  }
  return first_error;
}

void ShardState::SetAway(uint32_t worker) {
  away_.insert(worker);
  for (auto& [id, slot] : slots_) {
    if (slot.partition == nullptr) continue;
    slot.partition->SetAway(worker);
    if (slot.partition->applies_at_once()) AnswerReady(slot);
    NoteCompletion(slot);
  }
}

void ShardState::NoteEnded(uint32_t worker) {
  ended_.insert(worker);
  for (auto& [id, held] : slots_) {
    Slot& slot = held;
    const auto is_vain = [&](const WaitingPull& pull) { return !CheckComes(slot, pull).ok(); };
    for (const WaitingPull& pull : slot.pulls.TakeIf(is_vain)) {
      outbox_.AddPullError(pull.origin, pull.item, CheckComes(slot, pull));
    }
  }
}

std::optional<uint64_t> ShardState::DurableOf(const wire::ItemId& id, uint32_t worker) const {
  if (!tells_durable_) return std::nullopt;
  const auto found = slots_.find({.key = id.key(), .index = id.partition()});
  return found == slots_.end() ? 0 : found->second.durable.Of(worker);
}

const Partition* ShardState::Find(const PartitionId& id) const {
  const auto found = slots_.find(id);
  return found == slots_.end() ? nullptr : found->second.partition.get();
}

std::vector<PartitionId> ShardState::Partitions() const {
  std::vector<PartitionId> ids;
  for (const auto& [id, slot] : slots_) {
    if (slot.partition != nullptr) ids.push_back(id);
  }
  return ids;
}

absl::StatusOr<PartitionImage> ShardState::Save(const PartitionId& id) {
  Slot& slot = slots_.at(id);
  const auto save = [&] { return slot.partition->Save(); };
  SLIMPS_ASSIGN_OR_RETURN(PartitionImage image,
                          OrOutOfMemory(save, "a snapshot", slot.partition->spec().name));
  image.fields.set_priority(slot.priority);
  slot.durable.Copied(CountedBy(*slot.partition));
  if (simulation::Is(Mutant::kDurableBeforeWritten)) {
    slot.durable.Written();
    slot.durable.Copied(CountedBy(*slot.partition));
    slot.durable.Written();
  }
  return image;
}

saved::Shard ShardState::SaveShard() const {
  saved::Shard fields;
  *fields.mutable_optimizer() = optimizer_->spec();
  for (const auto& [worker, from_round] : leaves_) {
    saved::Left& left = *fields.add_left();
    left.set_worker(worker);
    left.set_from_round(from_round);
  }
  return fields;
}

void ShardState::NoteSnapshot() {
  for (auto& [id, slot] : slots_) slot.durable.Written();
}

absl::Status ShardState::Restore(const PartitionImage& image,
                                 std::shared_ptr<WaitingBytes> waiting) {
  SLIMPS_ASSIGN_OR_RETURN(std::unique_ptr<Partition> partition,
                          Partition::Restore(image, std::move(waiting), &change_codecs_));
  Slot& slot = slots_[{.key = partition->spec().key, .index = partition->spec().index}];
  if (slot.partition != nullptr) {
    return BadImage(DescribePartition(partition->spec().name, partition->spec().index) +
                    " comes twice");
  }
  slot.wait = figures_.AddPartition(partition->spec().name, partition->spec().num_workers);
  slot.partition = std::move(partition);
  slot.priority = image.fields.priority();
  slot.durable.Restored(CountedBy(*slot.partition));
  NoteCompletion(slot);
  return absl::OkStatus();
}

absl::StatusOr<std::vector<PartitionImage>> ShardState::SaveAll() {
  while (HasCompleteRound()) ApplyOne();
  std::vector<PartitionImage> images;
  for (const auto& [id, slot] : slots_) {
    if (slot.partition == nullptr) continue;
    const auto save = [&] { return slot.partition->Save(ImageUse::kCheckpoint); };
    SLIMPS_ASSIGN_OR_RETURN(PartitionImage image,
                            OrOutOfMemory(save, "a checkpoint", slot.partition->spec().name));
    images.push_back(std::move(image));
  }
  return images;
}

absl::Status ShardState::StageFor(const PartitionId& id, const Slot& slot,
                                  const PartitionImage& image) {
  const Partition& present = *slot.partition;
  if (slot.pulls.size() > 0) {
    return absl::FailedPreconditionError(
        absl::StrCat(DescribePartition(present.spec().name, id.index),
                     ": a pull waits for it; expected none while a checkpoint is loaded"));
  }
  const saved::Spec spec = SaveSpec(present.spec());
  if (IsCutAlike(spec, image.fields.spec())) {
    SLIMPS_ASSIGN_OR_RETURN(staged_[id], present.Successor(image, &change_codecs_));
    return absl::OkStatus();
  }
  SLIMPS_RETURN_IF_ERROR(present.CheckAlike(WithCutOf(spec, image.fields.spec())));
  ImageRecut& recut = recuts_.try_emplace(id, spec).first->second;
  SLIMPS_RETURN_IF_ERROR(recut.Add(image));
  if (!recut.whole()) return absl::OkStatus();
  const PartitionImage whole = recut.Take();
  recuts_.erase(id);
  SLIMPS_ASSIGN_OR_RETURN(staged_[id], present.Successor(whole, &change_codecs_));
  return absl::OkStatus();
}

absl::Status ShardState::Stage(const PartitionImage& image) {
  const wire::InitItem& item = image.fields.spec().item();
  if (by_key_.empty()) {
    for (const PartitionId& id : Partitions()) by_key_[id.key].push_back(id);
  }
  for (const PartitionId& id : by_key_[item.id().key()]) {
    const Slot& slot = slots_.at(id);
    const PartitionSpec& spec = slot.partition->spec();
    const bool shares = spec.offset < item.offset() + item.elements() &&
                        item.offset() < spec.offset + spec.elements;
    if (!shares) continue;
    SLIMPS_RETURN_IF_ERROR(
        OrOutOfMemory([&] { return StageFor(id, slot, image); }, "a checkpoint", spec.name));
  }
  return absl::OkStatus();
}

absl::Status ShardState::CheckStaged() const {
  for (const auto& [id, slot] : slots_) {
    if (slot.partition == nullptr || staged_.contains(id)) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        DescribePartition(slot.partition->spec().name, id.index), ": the checkpoint lacks it"));
  }
  return absl::OkStatus();
}

void ShardState::ApplyStaged(std::shared_ptr<const Optimizer> optimizer) {
  for (auto& [id, partition] : staged_) {
    Slot& slot = slots_.at(id);
    if (slot.complete.has_value()) complete_.erase(*slot.complete);
    slot.complete.reset();
    slot.partition = std::move(partition);
    for (const uint32_t worker : away_) slot.partition->SetAway(worker);
    NoteCompletion(slot);
  }
  DropStaged();
  optimizer_ = std::move(optimizer);
}

absl::Status ShardState::RestoreShard(const saved::Shard& fields) {
  SLIMPS_ASSIGN_OR_RETURN(optimizer_, Optimizer::Create(fields.optimizer()));
  for (const saved::Left& left : fields.left()) {
    uint64_t& from = leaves_.try_emplace(left.worker(), left.from_round()).first->second;
    from = std::min(from, left.from_round());
  }
  return absl::OkStatus();
}

}  // namespace slimps
