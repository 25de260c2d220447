// SPDX-License-Identifier: Apache-2.0
#include "compress/codec/state/state_repartition.h"

#include <algorithm>
#include <span>

#include "absl/strings/str_cat.h"
#include "proto/base/status_macros.h"

namespace slimps {
namespace {

absl::Status CheckGrids(KeyId key, const PartitionGrid& from, const PartitionGrid& to) {
  if (from.elements == to.elements && from.partition_elements > 0 && to.partition_elements > 0 &&
      to.partitions() <= uint32_t{0xffffffff}) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrCat("repartition key ", absl::Hex(key), ": expected two grids of one tensor, got ",
                   from.elements, " elements in partitions of ", from.partition_elements, " and ",
                   to.elements, " in partitions of ", to.partition_elements));
}

// Cuts one kind of the key's states, which lie under `from`, by `to` into `recut`.
void Recut(const CodecStates& old, StateKind kind, KeyId key, const PartitionGrid& from,
           const PartitionGrid& to, CodecStates& recut) {
  for (const auto& [id, state] : old) {
    const CodecState::Part& source = state.part(kind);
    const std::span<const float> piece = source.values.floats();
    const size_t begin = from.FirstOf(id.second), end = begin + piece.size();
    // Each step copies what the old partition and one new partition share.
    for (size_t at = begin; at < end;) {
      const size_t partition = at / to.partition_elements;
      const size_t first = to.FirstOf(partition), elements = to.ElementsOf(partition);
      const CodecStateId new_id(key, static_cast<uint32_t>(partition));
      CodecState& new_state = recut.try_emplace(new_id, elements).first->second;
      new_state.AddZeros(kind);
      CodecState::Part& target = new_state.part(kind);
      target.bound = std::max(target.bound, source.bound);
      const size_t copied = std::min(end, first + elements) - at;
      std::ranges::copy(piece.subspan(at - begin, copied),
                        target.values.floats().begin() + static_cast<ptrdiff_t>(at - first));
      at += copied;
    }
  }
}

}  // namespace

absl::Status RepartitionStates(KeyId key, const PartitionGrid& from, const PartitionGrid& to,
                               CodecStates* states) {
  SLIMPS_RETURN_IF_ERROR(CheckGrids(key, from, to));
  const auto first = states->lower_bound(CodecStateId(key, 0));
  const auto last = states->upper_bound(CodecStateId(key, ~uint32_t{0}));
  for (auto entry = first; entry != last; ++entry) {
    const uint32_t partition = entry->first.second;
    const size_t expected = partition < from.partitions() ? from.ElementsOf(partition) : 0;
    if (partition >= from.partitions() || entry->second.elements() != expected) {
      return absl::InvalidArgumentError(
          absl::StrCat("repartition key ", absl::Hex(key), ", partition ", partition, ": expected ",
                       expected, " elements, got ", entry->second.elements()));
    }
  }
  // All of the key's states leave the map, since the new ones take their ids.
  CodecStates old;
  for (auto entry = first; entry != last;) old.insert(states->extract(entry++));
  for (const StateKind kind : kStateKinds) Recut(old, kind, key, from, to, *states);
  return absl::OkStatus();
}

}  // namespace slimps
