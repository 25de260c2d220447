// SPDX-License-Identifier: Apache-2.0
#include "server/service/directory.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "compress/format/rows.h"
#include "proto/base/hash.h"
#include "proto/base/status_macros.h"
#include "proto/element_count.h"
#include "proto/limits.h"

namespace slimps {

std::optional<size_t> Directory::FindShard(const PartitionId& id) const {
  const auto found = places_.find(id);
  if (found == places_.end()) return std::nullopt;
  return found->second.shard;
}

Directory::Place& Directory::PlaceFor(const PartitionId& id, uint64_t elements) {
  const auto [at, added] = places_.try_emplace(id);
  Place& place = at->second;
  if (added) {
    place.shard = static_cast<size_t>(std::min_element(load_.begin(), load_.end()) - load_.begin());
  }
  load_[place.shard] += elements - place.elements;  // modulo 2^64, so it may shrink
  place.elements = elements;
  return place;
}

absl::StatusOr<size_t> Directory::Reserve(const PartitionId& id, uint64_t elements) {
  if (elements > limits_.max_partition_elements) {
    return absl::InvalidArgumentError(absl::StrCat("partition of ", elements, " elements, at most ",
                                                   limits_.max_partition_elements, " are allowed"));
  }
  if (places_.size() - declared_ >= limits_.max_reserved) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "pulls of ", limits_.max_reserved, " partitions wait for their initialisation already"));
  }
  return PlaceFor(id, elements).shard;
}

absl::Status Directory::CheckItem(const wire::InitItem& item) const {
  const wire::KeyInfo& info = item.info();
  if (info.name().empty() || HashText(info.name()) != item.id().key() ||
      info.key() != item.id().key()) {
    return absl::InvalidArgumentError(
        absl::StrCat("its name hashes to ", absl::Hex(HashText(info.name())), ", the item says ",
                     absl::Hex(item.id().key()), " and the key info ", absl::Hex(info.key())));
  }
  if (!wire::DType_IsValid(info.dtype())) {
    return absl::InvalidArgumentError(
        absl::StrCat("unknown type ", static_cast<int>(info.dtype())));
  }
  if (!wire::Combine_IsValid(item.combine())) {
    return absl::InvalidArgumentError(
        absl::StrCat("unknown way to combine gradients ", static_cast<int>(item.combine())));
  }
  const std::optional<uint64_t> total = ElementCount(info, kDefaultLimits.max_elements);
  if (!total.has_value()) {
    return absl::InvalidArgumentError(
        absl::StrCat("a dimension is negative, or there are more than ",
                     kDefaultLimits.max_elements, " elements"));
  }
  if (item.offset() > *total || item.elements() > *total - item.offset()) {
    return absl::InvalidArgumentError(absl::StrCat(item.elements(), " elements from ",
                                                   item.offset(), " on, but the key has ", *total));
  }
  if (item.elements() > limits_.max_partition_elements) {
    return absl::InvalidArgumentError(absl::StrCat(item.elements(), " elements, at most ",
                                                   limits_.max_partition_elements,
                                                   " are allowed in a partition"));
  }
  if (item.id().partition() >= item.partitions()) {
    return absl::InvalidArgumentError(
        absl::StrCat("the key has ", item.partitions(), " partitions"));
  }
  return CheckAuxiliary(item);
}

absl::Status Directory::CheckAuxiliary(const wire::InitItem& item) {
  const wire::KeyInfo& info = item.info();
  const std::string how = wire::Combine_Name(item.combine());
  if (!item.auxiliary()) {
    if (item.combine() == wire::SUM || item.combine() == wire::MAJORITY) return absl::OkStatus();
    return absl::InvalidArgumentError(absl::StrCat(
        "combined by ", how, ": expected SUM or MAJORITY for a key that is no auxiliary one"));
  }
  if (item.combine() == wire::MAJORITY) {
    return absl::InvalidArgumentError(absl::StrCat(
        "combined by ", how, ": expected SUM, MAXIMUM or ORTHOGONALISE for an auxiliary key"));
  }
  if (item.partitions() != 1 || info.dtype() != wire::FLOAT32) {
    return absl::InvalidArgumentError(
        absl::StrCat("an auxiliary key of ", item.partitions(), " partitions and type ",
                     wire::DType_Name(info.dtype()), ", expected 1 and FLOAT32"));
  }
  const size_t row = ElementsOfRow({info.shape().data(), static_cast<size_t>(info.shape_size())});
  if (item.offset() != 0 || row == 0 || item.elements() % row != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("an auxiliary key of ", item.elements(), " elements from ", item.offset(),
                     " on, expected whole rows of ", row, " from 0 on"));
  }
  const uint64_t rows = item.elements() / row;
  if (item.combine() != wire::ORTHOGONALISE || rows <= row) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      rows, " rows of ", row, " elements cannot be orthonormal, expected at most ", row));
}

absl::Status Directory::CheckKey(const wire::InitItem& item) const {
  const auto known = keys_.find(item.id().key());
  if (known == keys_.end()) return absl::OkStatus();
  const KeyFacts& facts = known->second;
  if (facts.name != item.info().name()) {
    return absl::AlreadyExistsError(absl::StrCat("its id belongs to key ", facts.name));
  }
  const uint64_t total = ElementCount(item.info(), kDefaultLimits.max_elements).value_or(0);
  if (facts.elements != total || facts.partitions != item.partitions() ||
      facts.dtype != item.info().dtype() || facts.combine != item.combine() ||
      facts.auxiliary != item.auxiliary()) {
    return absl::AlreadyExistsError(absl::StrCat(
        "declared before with ", facts.elements, " elements of ", wire::DType_Name(facts.dtype),
        " in ", facts.partitions, " partitions, combined by ", wire::Combine_Name(facts.combine),
        facts.auxiliary ? " as an auxiliary key" : "", ", now with ", total, " of ",
        wire::DType_Name(item.info().dtype()), " in ", item.partitions(), ", combined by ",
        wire::Combine_Name(item.combine()), item.auxiliary() ? " as an auxiliary key" : ""));
  }
  return absl::OkStatus();
}

absl::StatusOr<size_t> Directory::Declare(const wire::InitItem& item, PartitionSpec* spec) {
  SLIMPS_RETURN_IF_ERROR(CheckItem(item));
  SLIMPS_RETURN_IF_ERROR(CheckKey(item));
  const PartitionId id{.key = item.id().key(), .index = item.id().partition()};
  const auto found = places_.find(id);
  if (found == places_.end() || !found->second.declared) {
    const uint64_t max_elements = limits_.max_weight_bytes / sizeof(float);
    if (declared_ >= limits_.max_partitions || declared_elements_ > max_elements ||
        item.elements() > max_elements - declared_elements_) {
      // Trying again would not help.
      return absl::FailedPreconditionError(absl::StrCat(
          "this server holds ", declared_, " partitions with ", declared_elements_,
          " elements; at most ", limits_.max_partitions, " and ", max_elements, " are allowed"));
    }
    Place& place = PlaceFor(id, item.elements());
    place.declared = true;
    ++declared_;
    declared_elements_ += item.elements();
  }
  if (places_.at(id).elements != item.elements()) {
    return absl::AlreadyExistsError(absl::StrCat("declared before with ", places_.at(id).elements,
                                                 " elements, now with ", item.elements()));
  }
  keys_.try_emplace(
      id.key,
      KeyFacts{.name = item.info().name(),
               .elements = ElementCount(item.info(), kDefaultLimits.max_elements).value_or(0),
               .partitions = item.partitions(),
               .dtype = item.info().dtype(),
               .combine = item.combine(),
               .auxiliary = item.auxiliary()});
  spec->key = id.key;
  spec->index = id.index;
  spec->name = item.info().name();
  spec->shape.assign(item.info().shape().begin(), item.info().shape().end());
  spec->partitions = item.partitions();
  spec->offset = item.offset();
  spec->elements = static_cast<size_t>(item.elements());
  spec->row_elements =
      ElementsOfRow({item.info().shape().data(), static_cast<size_t>(item.info().shape_size())});
  spec->dtype = item.info().dtype();
  spec->layer = static_cast<LayerKind>(item.info().layer());
  spec->combine = static_cast<Combine>(item.combine());  // CheckItem knows them all
  spec->auxiliary = item.auxiliary();
  return places_.at(id).shard;
}

}  // namespace slimps
