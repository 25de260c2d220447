// SPDX-License-Identifier: Apache-2.0
#include "worker/tensor/key_table.h"

#include <algorithm>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/base/status_copy.h"
#include "proto/base/status_macros.h"
#include "proto/optimizer_check.h"

namespace slimps {

absl::StatusOr<TensorPlan> MakeTensorPlan(const Key& key, const wire::KeyInfo& info,
                                          const wire::KeyPlace& place, uint32_t num_servers) {
  TensorPlan plan{.key = key, .info = info, .elements = 1, .partitions = {}};
  for (int64_t extent : info.shape()) plan.elements *= static_cast<size_t>(extent);
  size_t next = 0;
  for (int i = 0; i < place.partitions_size(); ++i) {
    const wire::PartitionPlace& partition = place.partitions(i);
    if (partition.offset() != next || partition.elements() > plan.elements - next ||
        partition.server() >= num_servers) {
      return absl::InvalidArgumentError(
          absl::StrCat("placement of key ", key.typed_name(), " partition ", i, ": ",
                       partition.elements(), " elements at ", partition.offset(), " on server ",
                       partition.server(), "; expected offset ", next, " of ", plan.elements,
                       " elements and ", num_servers, " servers"));
    }
    plan.partitions.push_back({partition.server(), partition.offset(), partition.elements()});
    next += partition.elements();
  }
  if (next != plan.elements) {
    return absl::InvalidArgumentError(absl::StrCat("placement of key ", key.typed_name(),
                                                   " covers ", next, " of ", plan.elements,
                                                   " elements"));
  }
  return plan;
}

absl::Status KeyTable::CheckNew(std::span<const InitTensor> tensors) const {
  std::set<KeyId> seen;
  MutexLock lock(&mutex_);
  for (const InitTensor& tensor : tensors) {
    const Key& key = tensor.key;
    if (entries_.contains(key.id())) {
      return absl::AlreadyExistsError(
          absl::StrCat("key ", key.typed_name(), " was initialised before"));
    }
    if (!seen.insert(key.id()).second) {
      return absl::InvalidArgumentError(
          absl::StrCat("init names key ", key.typed_name(), " twice"));
    }
    const Key& other = entries_.empty() ? tensors[0].key : entries_.begin()->second->plan.key;
    if (other.is_number() != key.is_number()) {
      return absl::InvalidArgumentError(absl::StrCat("key ", key.typed_name(),
                                                     " is of another kind than key ",
                                                     other.typed_name(), "; a store has one kind"));
    }
  }
  return absl::OkStatus();
}

void KeyTable::Add(std::vector<TensorPlan> plans) {
  std::unordered_map<KeyId, std::unique_ptr<Entry>> added;
  for (TensorPlan& plan : plans) {
    const KeyId id = plan.key.id();
    added.emplace(id, std::make_unique<Entry>(Entry{.plan = std::move(plan)}));
  }
  MutexLock lock(&mutex_);
  // Nothing throws after this: all are added or none.
  entries_.reserve(entries_.size() + added.size());
  entries_.merge(added);
}

void KeyTable::SkipRounds(const Key& key, uint64_t rounds) {
  MutexLock lock(&mutex_);
  Entry& entry = *entries_.at(key.id());
  entry.pushed_rounds = std::max(entry.pushed_rounds, rounds);
}

absl::StatusOr<const TensorPlan*> KeyTable::Find(const Key& key) const {
  MutexLock lock(&mutex_);
  auto found = entries_.find(key.id());
  if (found == entries_.end()) {
    return absl::NotFoundError(absl::StrCat("key ", key.typed_name(), " was never initialised"));
  }
  return &found->second->plan;
}

CountedPush KeyTable::CountPush(const Key& key) {
  MutexLock lock(&mutex_);
  Entry& entry = *entries_.at(key.id());
  CountedPush counted{
      .round = entry.pushed_rounds + 1, .hyper = entry.hyper, .clipped = entry.clipped};
  ++entry.pushed_rounds;
  return counted;
}

absl::Status KeyTable::SetHyper(const Key& key, const std::optional<Hyper>& hyper) {
  SLIMPS_RETURN_IF_ERROR(Find(key).status());
  std::optional<wire::Hyper> set;
  if (hyper.has_value()) {
    set.emplace();
    set->set_learning_rate(hyper->learning_rate);
    set->set_weight_decay(hyper->weight_decay);
    if (hyper->momentum.has_value()) set->set_momentum(*hyper->momentum);
    SLIMPS_RETURN_IF_ERROR(
        Prefixed(ValidateHyper(*set), absl::StrCat("hyperparameters of key ", key.typed_name())));
  }
  MutexLock lock(&mutex_);
  entries_.at(key.id())->hyper = set;
  return absl::OkStatus();
}

absl::Status KeyTable::SetClipped(const Key& key, bool clipped) {
  SLIMPS_RETURN_IF_ERROR(Find(key).status());
  MutexLock lock(&mutex_);
  entries_.at(key.id())->clipped = clipped;
  return absl::OkStatus();
}

std::optional<double> KeyTable::HighestSetRate() const {
  MutexLock lock(&mutex_);
  std::optional<double> highest;
  for (const auto& [id, entry] : entries_) {
    if (!entry->hyper.has_value()) continue;
    highest = std::max(highest.value_or(0), entry->hyper->learning_rate());
  }
  return highest;
}

uint64_t KeyTable::PushedRounds(const Key& key) const {
  MutexLock lock(&mutex_);
  return entries_.at(key.id())->pushed_rounds;
}

CountedPush KeyTable::Progress(const Key& key) const {
  MutexLock lock(&mutex_);
  const Entry& entry = *entries_.at(key.id());
  return {.round = entry.pushed_rounds, .hyper = entry.hyper};
}

void KeyTable::Resume(const Key& key, CountedPush progress) {
  MutexLock lock(&mutex_);
  Entry& entry = *entries_.at(key.id());
  entry.pushed_rounds = progress.round;
  entry.hyper = std::move(progress.hyper);
}

bool KeyTable::empty() const {
  MutexLock lock(&mutex_);
  return entries_.empty();
}

std::vector<const TensorPlan*> KeyTable::InNameOrder() const {
  std::vector<const TensorPlan*> all;
  {
    MutexLock lock(&mutex_);
    for (const auto& [id, entry] : entries_) all.push_back(&entry->plan);
  }
  std::sort(all.begin(), all.end(), [](const TensorPlan* a, const TensorPlan* b) {
    return a->key.typed_name() < b->key.typed_name();
  });
  return all;
}

uint64_t KeyTable::MaxPushedRounds() const {
  MutexLock lock(&mutex_);
  uint64_t rounds = 0;
  for (const auto& [id, entry] : entries_) rounds = std::max(rounds, entry->pushed_rounds);
  return rounds;
}

uint64_t KeyTable::SumOfPushedRounds() const {
  MutexLock lock(&mutex_);
  uint64_t sum = 0;
  for (const auto& [id, entry] : entries_) sum += entry->pushed_rounds;
  return sum;
}

}  // namespace slimps
