// SPDX-License-Identifier: Apache-2.0
// StateStore::Repartition: old and new partitions overlap in pieces, which their elements' places
// in the tensor tell.
//
//   from  |-----0-----|-----1-----|--2--|
//   to    |--0--|--1--|--2--|--3--|--4--|
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "compress/codec/state/state_store.h"
#include "proto/base/status_macros.h"

namespace slimps {
namespace {

size_t Partitions(const PartitionGrid& grid) {
  if (grid.elements == 0) return 1;  // an empty tensor has one empty partition
  return (grid.elements - 1) / grid.partition_elements + 1;
}

size_t ElementsOf(const PartitionGrid& grid, size_t partition) {
  return std::min(grid.partition_elements, grid.elements - partition * grid.partition_elements);
}

absl::Status CheckGrids(KeyId key, const PartitionGrid& from, const PartitionGrid& to) {
  if (from.elements == to.elements && from.partition_elements > 0 && to.partition_elements > 0 &&
      Partitions(to) <= uint32_t{0xffffffff}) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrCat("repartition key ", absl::Hex(key), ": expected two grids of one tensor, got ",
                   from.elements, " elements in partitions of ", from.partition_elements, " and ",
                   to.elements, " in partitions of ", to.partition_elements));
}

}  // namespace

void StateStore::Recut(const States& old, CodecState::Part CodecState::*part, KeyId key,
                       const PartitionGrid& from, const PartitionGrid& to, States& recut) {
  for (const auto& [id, state] : old) {
    const std::span<const float> piece = (state.*part).values.floats();
    const size_t begin = id.second * from.partition_elements, end = begin + piece.size();
    // Each step copies what the old partition and one new partition share.
    for (size_t at = begin; at < end;) {
      const size_t partition = at / to.partition_elements;
      const size_t first = partition * to.partition_elements;
      const size_t elements = ElementsOf(to, partition);
      CodecState& target = recut[Id(key, static_cast<uint32_t>(partition))];
      target.elements_ = elements;
      (target.*part).AddZeros(elements);
      (target.*part).bound = std::max((target.*part).bound, (state.*part).bound);
      const size_t copied = std::min(end, first + elements) - at;
      std::ranges::copy(piece.subspan(at - begin, copied), (target.*part).values.floats().begin() +
                                                               static_cast<ptrdiff_t>(at - first));
      at += copied;
    }
  }
}

absl::Status StateStore::Repartition(KeyId key, const PartitionGrid& from,
                                     const PartitionGrid& to) {
  SLIMPS_RETURN_IF_ERROR(CheckGrids(key, from, to));
  MutexLock lock(&mutex_);
  const auto first = states_.lower_bound(Id(key, 0));
  const auto last = states_.upper_bound(Id(key, ~uint32_t{0}));
  for (auto entry = first; entry != last; ++entry) {
    const uint32_t partition = entry->first.second;
    const size_t expected = partition < Partitions(from) ? ElementsOf(from, partition) : 0;
    if (partition >= Partitions(from) || entry->second.elements_ != expected) {
      return absl::InvalidArgumentError(
          absl::StrCat("repartition key ", absl::Hex(key), ", partition ", partition, ": expected ",
                       expected, " elements, got ", entry->second.elements_));
    }
  }
  // All of the key's states leave the map, since the new ones take their ids.
  States old;
  while (true) {
    const auto entry = states_.lower_bound(Id(key, 0));
    if (entry == states_.end() || entry->first.first != key) break;
    old.insert(states_.extract(entry));
  }
  Recut(old, &CodecState::residual_, key, from, to, states_);
  Recut(old, &CodecState::momentum_, key, from, to, states_);
  return absl::OkStatus();
}

}  // namespace slimps
