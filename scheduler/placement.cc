// SPDX-License-Identifier: Apache-2.0
#include "scheduler/placement.h"

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <limits>
#include <tuple>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "proto/base/hash.h"
#include "proto/base/partition_grid.h"
#include "proto/base/status_macros.h"
#include "proto/element_count.h"

namespace slimps {
namespace {

constexpr size_t kMaxVariants = 200;  // of one key: KeyEntry::variant_of counts them in a byte

std::string Describe(const wire::KeyInfo& info) {
  return absl::StrCat("shape [", absl::StrJoin(info.shape(), ", "), "], dtype ",
                      wire::DType_Name(info.dtype()));
}

bool SameTensor(const wire::KeyInfo& a, const wire::KeyInfo& b) {
  return a.dtype() == b.dtype() &&
         std::equal(a.shape().begin(), a.shape().end(), b.shape().begin(), b.shape().end());
}

// Returns how many elements a partition of the key has.
uint64_t CutOf(const wire::KeyInfo& info, const wire::DeclareKeys& declared) {
  return info.partition_elements() > 0 ? info.partition_elements() : declared.partition_elements();
}

// REQUIRES: `info` passed CheckKey.
PartitionGrid GridOf(const wire::KeyInfo& info, uint64_t partition_elements) {
  constexpr uint64_t kNoLimit = std::numeric_limits<uint64_t>::max();
  return {.elements = ElementCount(info, kNoLimit).value(),
          .partition_elements = partition_elements};
}

}  // namespace

PlacementTable::PlacementTable(Options options)
    : options_(options), server_bytes_(options.num_servers, 0) {}

absl::Status PlacementTable::CheckKey(uint32_t worker, const wire::KeyInfo& info,
                                      uint64_t partition_elements) {
  ++steps_;
  const auto bad = [&](auto... what) {
    return absl::InvalidArgumentError(
        absl::StrCat("key ", info.name(), " of worker ", worker, ": ", what...));
  };
  const auto known = keys_.find(info.key());
  if (known != keys_.end()) {
    const std::string& name = known->second.variants[0].info.name();
    if (name != info.name()) {
      return bad("its id ", absl::Hex(info.key()), " belongs to key ", name,
                 " already (hash collision): rename one of them");
    }
  }
  if (info.key() != HashText(info.name())) {
    return bad("id ", absl::Hex(info.key()), " is not the hash of its name, expected ",
               absl::Hex(HashText(info.name())));
  }
  const std::optional<uint64_t> elements = ElementCount(info, options_.max_elements_of_key);
  if (!elements.has_value() || *elements == 0) {
    return bad(Describe(info), ": expected 1 to ", options_.max_elements_of_key, " elements");
  }
  if (GridOf(info, partition_elements).partitions() > options_.max_partitions_of_key) {
    return bad(*elements, " elements in partitions of ", partition_elements, " make more than ",
               options_.max_partitions_of_key, " partitions");
  }
  if (known == keys_.end()) return absl::OkStatus();
  const KeyEntry& entry = known->second;
  if (entry.variant_of[worker] == 0) {
    if (entry.variants.size() < kMaxVariants) return absl::OkStatus();
    return bad("workers declare it in ", kMaxVariants, " ways already");
  }
  const Variant& before = entry.variants[entry.variant_of[worker] - 1u];
  if (!SameTensor(before.info, info) || before.partition_elements != partition_elements) {
    return bad("declared before with ", Describe(before.info), " in partitions of ",
               before.partition_elements, ", now with ", Describe(info), " in partitions of ",
               partition_elements);
  }
  return absl::OkStatus();
}

absl::Status PlacementTable::CheckDeclaration(uint32_t worker, const wire::DeclareKeys& declared,
                                              size_t* partitions) {
  if (worker >= options_.num_workers) {
    return absl::InvalidArgumentError(absl::StrCat("worker ", worker,
                                                   " declares keys, but the job ", "has ",
                                                   options_.num_workers, " workers"));
  }
  if (declared.partition_elements() == 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("worker ", worker, ": partition_elements is 0, expected at least 1"));
  }
  size_t fresh = 0;
  std::unordered_map<uint64_t, const wire::KeyInfo*> batch;
  for (const wire::KeyInfo& info : declared.keys()) {
    const auto [twin, inserted] = batch.emplace(info.key(), &info);
    if (!inserted) {
      return absl::InvalidArgumentError(absl::StrCat("worker ", worker, " declares keys ",
                                                     twin->second->name(), " and ", info.name(),
                                                     " with one id ", absl::Hex(info.key())));
    }
    SLIMPS_RETURN_IF_ERROR(CheckKey(worker, info, CutOf(info, declared)));
    if (keys_.contains(info.key())) continue;
    ++fresh;
    *partitions += GridOf(info, CutOf(info, declared)).partitions();
  }
  if (fresh > options_.max_keys - std::min(keys_.size(), options_.max_keys)) {
    return absl::ResourceExhaustedError(
        absl::StrCat("worker ", worker, " declares ", fresh, " new keys over ", keys_.size(),
                     " known: at most ", options_.max_keys, " are allowed"));
  }
  if (*partitions > options_.max_partitions - std::min(partitions_, options_.max_partitions)) {
    return absl::ResourceExhaustedError(
        absl::StrCat("worker ", worker, " declares ", *partitions, " new partitions over ",
                     partitions_, " known: at most ", options_.max_partitions, " are allowed"));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<PlacementTable::Answer>> PlacementTable::Declare(
    uint32_t worker, uint64_t request, const wire::DeclareKeys& declared) {
  const RequestId id = {worker, request};
  if (waiting_.contains(id)) return std::vector<Answer>{};  // a repeat
  const auto waits =
      std::distance(waiting_.lower_bound({worker, 0}), waiting_.upper_bound({worker, UINT64_MAX}));
  if (waits >= static_cast<ptrdiff_t>(options_.max_waiting_of_worker)) {
    return absl::ResourceExhaustedError(
        absl::StrCat("worker ", worker, " has ", options_.max_waiting_of_worker,
                     " declarations of keys waiting for other workers: no more are taken"));
  }
  size_t partitions = 0;
  SLIMPS_RETURN_IF_ERROR(CheckDeclaration(worker, declared, &partitions));
  const absl::Status alike = CompareKeys(worker, declared);
  if (!alike.ok()) {
    std::vector<Answer> answers;
    for (auto other = waiting_.begin(); other != waiting_.end();) {
      const bool compared = other->second.number == declared.number();
      if (compared) answers.push_back({other->first.first, other->first.second, alike});
      other = compared ? waiting_.erase(other) : std::next(other);
    }
    answers.push_back({worker, request, alike});
    return answers;
  }
  partitions_ += partitions;

  Waiting waiting{.number = declared.number()};
  std::set<RequestId> ready;
  bool failed = false;
  for (const wire::KeyInfo& info : declared.keys()) {
    KeyEntry& entry = keys_[info.key()];
    waiting.keys.push_back(&entry);
    if (AddTo(&entry, worker, info, CutOf(info, declared))) WakeWaiting(&entry, &ready);
    failed |= HasFailed(entry);
    if (!IsSettled(entry)) ++waiting.missing;
  }
  if (waiting.missing == 0 || failed) {
    ready.insert(id);
  } else {
    for (KeyEntry* entry : waiting.keys) {
      if (!IsSettled(*entry)) entry->waiting.push_back(id);
    }
  }
  waiting_[id] = std::move(waiting);
  return AnswerReady(ready);
}

absl::Status PlacementTable::CompareKeys(uint32_t worker, const wire::DeclareKeys& declared) {
  if (declared.number() == 0) return absl::OkStatus();
  const auto first = declared_.find(declared.number());
  if (first == declared_.end()) {
    // A member chooses how often it declares its keys, each time under another number.
    const size_t keys = std::max<size_t>(declared.keys().size(), 1);
    if (keys > options_.max_keys - compared_keys_) return absl::OkStatus();  // not compared
    compared_keys_ += keys;
    Declared& mine = declared_[declared.number()];
    mine.worker = worker;
    for (const wire::KeyInfo& info : declared.keys()) mine.keys.insert(info.key());
    return absl::OkStatus();
  }
  Declared& expected = first->second;
  if (!expected.failure.ok()) return expected.failure;
  std::set<uint64_t> missing = expected.keys;
  const wire::KeyInfo* extra = nullptr;
  for (const wire::KeyInfo& info : declared.keys()) {
    if (missing.erase(info.key()) == 0 && extra == nullptr) extra = &info;
  }
  if (missing.empty() && extra == nullptr) return absl::OkStatus();
  std::string text = absl::StrCat("the workers initialise different keys: worker ", worker,
                                  " declares ", declared.keys_size(), " and worker ",
                                  expected.worker, " ", expected.keys.size());
  if (extra != nullptr) {
    absl::StrAppend(&text, "; only worker ", worker, " has ", extra->name(), ", ",
                    Describe(*extra));
  }
  const wire::KeyInfo* lacks = nullptr;  // the first by name, whichever the order
  for (const uint64_t key : missing) {
    const wire::KeyInfo& info = keys_.at(key).variants[0].info;
    if (lacks == nullptr || info.name() < lacks->name()) lacks = &info;
  }
  if (lacks != nullptr) {
    absl::StrAppend(&text, "; only worker ", expected.worker, " has ", lacks->name(), ", ",
                    Describe(*lacks));
  }
  expected.failure = absl::InvalidArgumentError(text);
  return expected.failure;
}

bool PlacementTable::AddTo(KeyEntry* entry, uint32_t worker, const wire::KeyInfo& info,
                           uint64_t partition_elements) {
  ++steps_;
  if (entry->variant_of.empty()) {
    entry->variant_of.resize(options_.num_workers);
    // A worker that has left cannot declare the key any more.
    if (!left_.empty()) entry->left_without = *left_.begin();
  }
  uint8_t& mine = entry->variant_of[worker];
  if (mine != 0) return false;
  const bool was_settled = IsSettled(*entry);
  auto same = std::ranges::find_if(entry->variants, [&](const Variant& variant) {
    return SameTensor(variant.info, info) && variant.partition_elements == partition_elements;
  });
  if (same == entry->variants.end()) {
    same = entry->variants.insert(same, {info, partition_elements, worker});
  }
  same->lowest_worker = std::min(same->lowest_worker, worker);
  mine = static_cast<uint8_t>(same - entry->variants.begin() + 1);
  ++entry->declared_by;
  return !was_settled && IsSettled(*entry);
}

bool PlacementTable::HasFailed(const KeyEntry& entry) const {
  return entry.variants.size() > 1 || entry.left_without.has_value();
}

bool PlacementTable::IsSettled(const KeyEntry& entry) const {
  return entry.declared_by == options_.num_workers || HasFailed(entry);
}

void PlacementTable::WakeWaiting(KeyEntry* entry, std::set<RequestId>* ready) {
  const bool failed = HasFailed(*entry);
  for (const RequestId& id : std::exchange(entry->waiting, {})) {
    ++steps_;
    const auto found = waiting_.find(id);
    if (found == waiting_.end()) continue;  // answered before: another of its keys failed
    if (--found->second.missing == 0 || failed) ready->insert(id);
  }
}

absl::Status PlacementTable::CheckAgreement(const KeyEntry& entry) const {
  if (entry.variants.size() < 2) return absl::OkStatus();
  const auto of_worker = [](const Variant* a, const Variant* b) {
    return a->lowest_worker < b->lowest_worker;
  };
  std::vector<const Variant*> ways;
  for (const Variant& variant : entry.variants) ways.push_back(&variant);
  std::ranges::sort(ways, of_worker);
  const Variant& first = *ways[0];
  const Variant& other = *ways[1];
  const std::string key = absl::StrCat("key ", first.info.name(), ": worker ", other.lowest_worker);
  if (!SameTensor(first.info, other.info)) {
    return absl::InvalidArgumentError(absl::StrCat(key, " declares ", Describe(other.info),
                                                   ", expected as worker ", first.lowest_worker,
                                                   " declares: ", Describe(first.info)));
  }
  return absl::InvalidArgumentError(absl::StrCat(
      key, " cuts partitions of ", other.partition_elements, " elements, expected as worker ",
      first.lowest_worker, " does: ", first.partition_elements));
}

std::vector<PlacementTable::Answer> PlacementTable::AnswerReady(const std::set<RequestId>& ready) {
  std::vector<Answer> answers;
  for (const RequestId& id : ready) {
    const Waiting waiting = std::move(waiting_.extract(id).mapped());
    answers.push_back({id.first, id.second, PlacementOf(waiting.keys)});
  }
  return answers;
}

absl::StatusOr<wire::Placement> PlacementTable::PlacementOf(const std::vector<KeyEntry*>& keys) {
  std::vector<KeyEntry*> unplaced;
  for (KeyEntry* entry : keys) {
    ++steps_;
    SLIMPS_RETURN_IF_ERROR(CheckAgreement(*entry));
    if (entry->left_without.has_value()) {
      return absl::FailedPreconditionError(absl::StrCat("key ", entry->variants[0].info.name(),
                                                        ": worker ", *entry->left_without,
                                                        " left without declaring it"));
    }
    if (!entry->place.has_value()) unplaced.push_back(entry);
  }
  Place(unplaced);
  wire::Placement placement;
  placement.mutable_keys()->Reserve(static_cast<int>(keys.size()));
  for (const KeyEntry* entry : keys) *placement.add_keys() = *entry->place;
  return placement;
}

std::vector<PlacementTable::Answer> PlacementTable::Leave(uint32_t worker) {
  left_.insert(worker);
  std::set<RequestId> ready;
  for (auto& [id, entry] : keys_) {
    if (entry.variant_of[worker] != 0 || entry.left_without.has_value()) continue;
    entry.left_without = worker;
    WakeWaiting(&entry, &ready);
  }
  return AnswerReady(ready);
}

Undeclared PlacementTable::FindUndeclared() const {
  constexpr size_t kMaxKeys = 8;
  Undeclared found;
  std::set<const KeyEntry*> seen;
  std::set<uint32_t> missing;
  for (const auto& [id, waiting] : waiting_) {
    for (const KeyEntry* entry : waiting.keys) {
      if (seen.size() == kMaxKeys) break;
      if (IsSettled(*entry) || !seen.insert(entry).second) continue;
      found.keys.push_back(entry->variants[0].info.name());
      for (uint32_t worker = 0; worker < options_.num_workers; ++worker) {
        if (entry->variant_of[worker] == 0) missing.insert(worker);
      }
    }
  }
  for (const uint32_t worker : missing) found.missing.emplace_back(wire::WORKER, worker);
  return found;
}

void PlacementTable::Place(const std::vector<KeyEntry*>& entries) {
  struct Piece {
    wire::PartitionPlace* place;
    const std::string* name;
  };
  std::vector<Piece> pieces;
  for (KeyEntry* entry : entries) {
    const Variant& declaration = entry->variants[0];
    const PartitionGrid grid = GridOf(declaration.info, declaration.partition_elements);
    wire::KeyPlace& place = entry->place.emplace();
    place.set_key(declaration.info.key());
    for (size_t i = 0; i < grid.partitions(); ++i) {
      wire::PartitionPlace* partition = place.add_partitions();
      partition->set_offset(grid.FirstOf(i));
      partition->set_elements(grid.ElementsOf(i));
      pieces.push_back({partition, &declaration.info.name()});
    }
  }
  // Name and offset break ties, so that the order never depends on which worker came first.
  std::sort(pieces.begin(), pieces.end(), [](const Piece& a, const Piece& b) {
    const uint64_t a_elements = a.place->elements();
    const uint64_t b_elements = b.place->elements();
    return std::forward_as_tuple(b_elements, *a.name, a.place->offset()) <
           std::forward_as_tuple(a_elements, *b.name, b.place->offset());
  });
  std::set<std::pair<uint64_t, uint32_t>> servers;  // bytes, rank
  for (uint32_t rank = 0; rank < server_bytes_.size(); ++rank) {
    servers.insert({server_bytes_[rank], rank});
  }
  for (const Piece& piece : pieces) {
    auto least = servers.extract(servers.begin());
    const uint32_t rank = least.value().second;
    piece.place->set_server(rank);
    server_bytes_[rank] += piece.place->elements() * sizeof(float);
    least.value().first = server_bytes_[rank];
    servers.insert(std::move(least));
  }
}

}  // namespace slimps
