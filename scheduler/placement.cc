#include "scheduler/placement.h"

#include <algorithm>
#include <tuple>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "proto/base/hash.h"
#include "proto/base/status_macros.h"

namespace slimps {
namespace {

std::string Describe(const wire::KeyInfo& info) {
  return absl::StrCat("shape [", absl::StrJoin(info.shape(), ", "), "], dtype ",
                      wire::DType_Name(info.dtype()));
}

bool SameTensor(const wire::KeyInfo& a, const wire::KeyInfo& b) {
  return a.dtype() == b.dtype() &&
         std::equal(a.shape().begin(), a.shape().end(), b.shape().begin(), b.shape().end());
}

// nullopt: negative, or over `limit`.
std::optional<uint64_t> Elements(const wire::KeyInfo& info, uint64_t limit) {
  uint64_t elements = 1;
  for (const int64_t dim : info.shape()) {
    if (dim < 0) return std::nullopt;
    if (dim > 0 && elements > limit / static_cast<uint64_t>(dim)) return std::nullopt;
    elements *= static_cast<uint64_t>(dim);
  }
  return elements;
}

// REQUIRES: `info` passed CheckKey.
size_t Partitions(const wire::KeyInfo& info, uint64_t partition_elements) {
  uint64_t elements = 1;
  for (const int64_t dim : info.shape()) elements *= static_cast<uint64_t>(dim);
  return (elements - 1) / partition_elements + 1;
}

}  // namespace

PlacementTable::PlacementTable(Options options)
    : options_(options), server_bytes_(options.num_servers, 0) {}

absl::Status PlacementTable::CheckKey(uint32_t worker, const wire::KeyInfo& info,
                                      uint64_t partition_elements) const {
  const auto bad = [&](auto... what) {
    return absl::InvalidArgumentError(
        absl::StrCat("key ", info.name(), " of worker ", worker, ": ", what...));
  };
  const auto known = keys_.find(info.key());
  if (known != keys_.end() && !known->second.by_worker.empty()) {
    const std::string& name = known->second.by_worker.begin()->second.info.name();
    if (name != info.name()) {
      return bad("its id ", absl::Hex(info.key()), " belongs to key ", name,
                 " already (hash collision): rename one of them");
    }
  }
  if (info.key() != HashText(info.name())) {
    return bad("id ", absl::Hex(info.key()), " is not the hash of its name, expected ",
               absl::Hex(HashText(info.name())));
  }
  const std::optional<uint64_t> elements = Elements(info, options_.max_elements_of_key);
  if (!elements.has_value() || *elements == 0) {
    return bad(Describe(info), ": expected 1 to ", options_.max_elements_of_key, " elements");
  }
  if ((*elements - 1) / partition_elements >= options_.max_partitions_of_key) {
    return bad(*elements, " elements in partitions of ", partition_elements, " make more than ",
               options_.max_partitions_of_key, " partitions");
  }
  if (known == keys_.end()) return absl::OkStatus();
  const auto before = known->second.by_worker.find(worker);
  if (before != known->second.by_worker.end() &&
      (!SameTensor(before->second.info, info) ||
       before->second.partition_elements != partition_elements)) {
    return bad("declared before with ", Describe(before->second.info), " in partitions of ",
               before->second.partition_elements, ", now with ", Describe(info),
               " in partitions of ", partition_elements);
  }
  return absl::OkStatus();
}

absl::Status PlacementTable::Declare(uint32_t worker, const wire::DeclareKeys& declared) {
  if (declared.partition_elements() == 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("worker ", worker, ": partition_elements is 0, expected at least 1"));
  }
  size_t fresh = 0;
  size_t partitions = 0;
  std::map<uint64_t, const wire::KeyInfo*> batch;
  for (const wire::KeyInfo& info : declared.keys()) {
    const auto [twin, inserted] = batch.emplace(info.key(), &info);
    if (!inserted) {
      return absl::InvalidArgumentError(absl::StrCat("worker ", worker, " declares keys ",
                                                     twin->second->name(), " and ", info.name(),
                                                     " with one id ", absl::Hex(info.key())));
    }
    SLIMPS_RETURN_IF_ERROR(CheckKey(worker, info, declared.partition_elements()));
    if (keys_.contains(info.key())) continue;
    ++fresh;
    partitions += Partitions(info, declared.partition_elements());
  }
  if (fresh > options_.max_keys - std::min(keys_.size(), options_.max_keys)) {
    return absl::ResourceExhaustedError(
        absl::StrCat("worker ", worker, " declares ", fresh, " new keys over ", keys_.size(),
                     " known: at most ", options_.max_keys, " are allowed"));
  }
  if (partitions > options_.max_partitions - std::min(partitions_, options_.max_partitions)) {
    return absl::ResourceExhaustedError(
        absl::StrCat("worker ", worker, " declares ", partitions, " new partitions over ",
                     partitions_, " known: at most ", options_.max_partitions, " are allowed"));
  }
  partitions_ += partitions;
  for (const wire::KeyInfo& info : declared.keys()) {
    keys_[info.key()].by_worker.try_emplace(worker,
                                            Declaration{info, declared.partition_elements()});
  }
  return absl::OkStatus();
}

absl::Status PlacementTable::CheckAgreement(const KeyEntry& entry) const {
  const auto& [first_worker, first] = *entry.by_worker.begin();
  for (const auto& [worker, other] : entry.by_worker) {
    if (!SameTensor(first.info, other.info)) {
      return absl::InvalidArgumentError(absl::StrCat(
          "key ", first.info.name(), ": worker ", worker, " declares ", Describe(other.info),
          ", expected as worker ", first_worker, " declares: ", Describe(first.info)));
    }
    if (first.partition_elements != other.partition_elements) {
      return absl::InvalidArgumentError(
          absl::StrCat("key ", first.info.name(), ": worker ", worker, " cuts partitions of ",
                       other.partition_elements, " elements, expected as worker ", first_worker,
                       " does: ", first.partition_elements));
    }
  }
  return absl::OkStatus();
}

std::optional<uint32_t> PlacementTable::FirstMissing(const KeyEntry& entry) const {
  for (uint32_t worker = 0; worker < options_.num_workers; ++worker) {
    if (!entry.by_worker.contains(worker)) return worker;
  }
  return std::nullopt;
}

std::optional<absl::StatusOr<wire::Placement>> PlacementTable::Answer(
    const wire::DeclareKeys& declared) {
  std::vector<KeyEntry*> entries;
  std::vector<KeyEntry*> unplaced;
  bool waiting = false;
  for (const wire::KeyInfo& info : declared.keys()) {
    const auto found = keys_.find(info.key());
    if (found == keys_.end()) {
      return absl::NotFoundError(absl::StrCat("key ", info.name(), " was never declared"));
    }
    const absl::Status agreed = CheckAgreement(found->second);
    if (!agreed.ok()) return agreed;
    const std::optional<uint32_t> missing = FirstMissing(found->second);
    if (missing.has_value() && left_.contains(*missing)) {
      return absl::FailedPreconditionError(
          absl::StrCat("key ", info.name(), ": worker ", *missing, " left without declaring it"));
    }
    waiting |= missing.has_value();
    entries.push_back(&found->second);
    if (!found->second.place.has_value()) unplaced.push_back(&found->second);
  }
  if (waiting) return std::nullopt;
  Place(unplaced);
  wire::Placement placement;
  for (const KeyEntry* entry : entries) *placement.add_keys() = *entry->place;
  return placement;
}

void PlacementTable::Leave(uint32_t worker) { left_.insert(worker); }

void PlacementTable::Place(const std::vector<KeyEntry*>& entries) {
  struct Piece {
    wire::PartitionPlace* place;
    const std::string* name;
  };
  std::vector<Piece> pieces;
  for (KeyEntry* entry : entries) {
    const Declaration& declaration = entry->by_worker.begin()->second;
    const uint64_t elements = *Elements(declaration.info, options_.max_elements_of_key);
    wire::KeyPlace& place = entry->place.emplace();
    place.set_key(declaration.info.key());
    for (uint64_t offset = 0; offset < elements; offset += declaration.partition_elements) {
      wire::PartitionPlace* partition = place.add_partitions();
      partition->set_offset(offset);
      partition->set_elements(std::min(declaration.partition_elements, elements - offset));
      pieces.push_back({partition, &declaration.info.name()});
    }
  }
  std::sort(pieces.begin(), pieces.end(), [](const Piece& a, const Piece& b) {
    const uint64_t a_elements = a.place->elements();
    const uint64_t b_elements = b.place->elements();
    return std::forward_as_tuple(b_elements, *a.name, a.place->offset()) <
           std::forward_as_tuple(a_elements, *b.name, b.place->offset());
  });
  for (const Piece& piece : pieces) {
    const auto least = std::min_element(server_bytes_.begin(), server_bytes_.end());
    piece.place->set_server(static_cast<uint32_t>(least - server_bytes_.begin()));
    *least += piece.place->elements() * sizeof(float);
  }
}

}  // namespace slimps
