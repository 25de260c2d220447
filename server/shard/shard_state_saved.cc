// SPDX-License-Identifier: Apache-2.0
// What snapshots, checkpoints and workers that come back need of a shard's state, and what the state
// takes from them.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/base/out_of_memory.h"
#include "proto/base/status_macros.h"
#include "server/shard/shard_state.h"

namespace slimps {
namespace {

std::vector<uint64_t> CountedBy(const Partition& partition) {
  std::vector<uint64_t> counted(partition.spec().num_workers);
  for (uint32_t worker = 0; worker < counted.size(); ++worker) {
    counted[worker] = partition.CountedUpTo(worker);
  }
  return counted;
}

}  // namespace

absl::Status ShardState::Stand(const wire::ItemId& id, uint32_t worker,
                               std::optional<wire::Standing>* standing) const {
  const Partition* const partition = Find({.key = id.key(), .index = id.partition()});
  if (partition == nullptr) {
    return absl::NotFoundError("asked where it stands, but it was never initialised");
  }
  SLIMPS_ASSIGN_OR_RETURN(*standing, partition->StandingOf(worker));
  return absl::OkStatus();
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

absl::StatusOr<bool> ShardState::Stage(const PartitionImage& image) {
  const wire::ItemId& id = image.fields.spec().item().id();
  const auto found = slots_.find({.key = id.key(), .index = id.partition()});
  if (found == slots_.end() || found->second.partition == nullptr) return false;
  Slot& slot = found->second;
  const Partition& present = *slot.partition;
  if (slot.pulls.size() > 0) {
    return absl::FailedPreconditionError(
        absl::StrCat(DescribePartition(present.spec().name, present.spec().index),
                     ": a pull waits for it; expected none while a checkpoint is loaded"));
  }
  const auto make = [&] { return present.Successor(image, &change_codecs_); };
  SLIMPS_ASSIGN_OR_RETURN(staged_[found->first],
                          OrOutOfMemory(make, "a checkpoint", present.spec().name));
  return true;
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
    NoteCompletion(slot);
  }
  staged_.clear();
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
