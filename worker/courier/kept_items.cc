// SPDX-License-Identifier: Apache-2.0
#include "worker/courier/kept_items.h"

#include <algorithm>
#include <variant>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "proto/base/simulation/mutant.h"

namespace slimps {
namespace {

// Returns the item's place in its partition's order; nullopt: no snapshot replaces such an item.
std::optional<std::pair<uint64_t, bool>> PlaceOf(const OutgoingItem& item) {
  if (const auto* push = std::get_if<wire::PushItem>(&item.item)) {
    return std::pair(push->round(), push->has_gradient_scale());
  }
  const auto* init = std::get_if<wire::InitItem>(&item.item);
  if (init == nullptr || init->has_state() || init->format() == wire::ABSENT) return std::nullopt;
  return std::pair(uint64_t{0}, false);
}

}  // namespace

void KeptItems::Keep(uint32_t server, const OutgoingItem& item) {
  const auto place = PlaceOf(item);
  if (!place.has_value()) return;
  Partition& partition = partitions_[{item.id().key(), item.id().partition()}];
  partition.server = server;
  const auto [at, is_new] = partition.items.try_emplace(*place);
  if (!is_new) return;  // it was sent again, and acknowledged again
  at->second = {.item = item.item, .payload = item.payload, .key_name = item.key_name, .done = {}};
  bytes_ += item.payload.size();
  bytes_since_wish_ += item.payload.size();
  if (bytes_ > max_bytes_) DropAllOf(Fullest());
}

uint32_t KeptItems::Fullest() const {
  std::map<uint32_t, size_t> bytes;  // by server
  for (const auto& [id, partition] : partitions_) {
    for (const auto& [place, item] : partition.items) {
      bytes[partition.server] += item.payload.size();
    }
  }
  const auto fullest = std::ranges::max_element(
      bytes, [](const auto& a, const auto& b) { return a.second < b.second; });
  return fullest->first;
}

void KeptItems::Erase(Partition& partition, std::map<Place, OutgoingItem>::iterator item) {
  bytes_ -= item->second.payload.size();
  partition.items.erase(item);
}

void KeptItems::DropAllOf(uint32_t server) {
  for (auto& [id, partition] : partitions_) {
    if (partition.server != server || partition.items.empty()) continue;
    partition.lacks = std::max(partition.lacks.value_or(0), partition.items.rbegin()->first.first);
    while (!partition.items.empty()) Erase(partition, partition.items.begin());
  }
}

void KeptItems::DropDurable(const wire::ItemId& id, uint64_t durable) {
  if (durable == 0) return;
  const auto found = partitions_.find({id.key(), id.partition()});
  if (found == partitions_.end()) return;
  Partition& partition = found->second;
  const uint64_t newest = simulation::Is(Mutant::kReplayOffByOne) ? durable : durable - 1;
  while (!partition.items.empty() && partition.items.begin()->first.first <= newest) {
    Erase(partition, partition.items.begin());
  }
  if (partition.lacks.has_value() && *partition.lacks <= newest) partition.lacks.reset();
}

bool KeptItems::TakeWish() {
  if (bytes_ <= max_bytes_ / 2 || bytes_since_wish_ < max_bytes_ / 8) return false;
  bytes_since_wish_ = 0;
  return true;
}

absl::StatusOr<std::vector<wire::ItemId>> KeptItems::StartReplay(uint32_t server) {
  std::vector<wire::ItemId> ids;
  for (auto& [id, partition] : partitions_) {
    if (partition.server != server) continue;
    if (partition.lacks.has_value()) {
      return absl::FailedPreconditionError(
          absl::StrCat("server ", server,
                       " was started again, and lacks pushes that this worker keeps no more: "
                       "over ",
                       max_bytes_, " bytes were acknowledged without a snapshot"));
    }
    if (partition.items.empty()) continue;
    partition.replay_from = Place();
    wire::ItemId& one = ids.emplace_back();
    one.set_key(id.first);
    one.set_partition(id.second);
  }
  return ids;
}

std::optional<OutgoingItem> KeptItems::NextToReplay(const wire::ItemId& id) {
  const auto found = partitions_.find({id.key(), id.partition()});
  if (found == partitions_.end() || !found->second.replay_from.has_value()) return std::nullopt;
  Partition& partition = found->second;
  const auto next = partition.items.lower_bound(*partition.replay_from);
  if (next == partition.items.end()) {
    partition.replay_from.reset();
    return std::nullopt;
  }
  partition.replay_from = {next->first.first + (next->first.second ? 1 : 0), !next->first.second};
  const OutgoingItem& kept = next->second;
  return OutgoingItem{
      .item = kept.item, .payload = kept.payload, .key_name = kept.key_name, .done = {}};
}

}  // namespace slimps
