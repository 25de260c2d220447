// SPDX-License-Identifier: Apache-2.0
#include "compress/codec/state/state_store.h"

#include <fstream>
#include <sstream>
#include <streambuf>

#include "absl/strings/str_cat.h"
#include "compress/codec/state/state_file.h"
#include "compress/codec/state/state_repartition.h"
#include "proto/base/file.h"
#include "proto/base/status_macros.h"

namespace slimps {
namespace {

absl::Status WrongLength(KeyId key, uint32_t partition, size_t expected, size_t got) {
  return absl::FailedPreconditionError(absl::StrCat("codec state of key ", absl::Hex(key),
                                                    ", partition ", partition, ": expected ",
                                                    expected, " elements, got ", got));
}

// Lets a stream read from memory without a copy. Thread-compatible. The memory outlives it.
class MemoryBuffer final : public std::streambuf {
 public:
  explicit MemoryBuffer(std::string_view content) {
    char* const begin = const_cast<char*>(content.data());  // never written to
    setg(begin, begin, begin + content.size());
  }
};

}  // namespace

absl::StatusOr<CodecState*> StateStore::Entry(KeyId key, uint32_t partition, size_t elements) {
  MutexLock lock(&mutex_);
  CodecState& state = states_.try_emplace(CodecStateId(key, partition), elements).first->second;
  if (state.elements() != elements) return WrongLength(key, partition, state.elements(), elements);
  return &state;
}

absl::StatusOr<CodecState*> StateStore::Prepare(const Codec& codec, KeyId key, uint32_t partition,
                                                EncodeInput& input) {
  if (!codec.wants_residual() && !codec.wants_momentum() && Find(key, partition) == nullptr) {
    return nullptr;
  }
  SLIMPS_ASSIGN_OR_RETURN(CodecState* const state, Entry(key, partition, input.gradient.size()));
  state->LendTo(codec, input);
  return state;
}

absl::StatusOr<CodecState*> StateStore::GetOrCreate(KeyId key, uint32_t partition, size_t elements,
                                                    Momentum momentum) {
  SLIMPS_ASSIGN_OR_RETURN(CodecState* const state, Entry(key, partition, elements));
  state->AddZeros(StateKind::kResidual);
  if (momentum == Momentum::kWanted) state->AddZeros(StateKind::kMomentum);
  return state;
}

CodecState* StateStore::Find(KeyId key, uint32_t partition) {
  MutexLock lock(&mutex_);
  const auto entry = states_.find(CodecStateId(key, partition));
  return entry == states_.end() ? nullptr : &entry->second;
}

void StateStore::Clear() {
  MutexLock lock(&mutex_);
  states_.clear();
}

void StateStore::ReplaceBy(StateStore&& other) {
  CodecStates taken;
  {
    MutexLock lock(&other.mutex_);
    taken = std::move(other.states_);
    other.states_.clear();
  }
  MutexLock lock(&mutex_);
  states_ = std::move(taken);
}

std::vector<KeyId> StateStore::Keys() const {
  MutexLock lock(&mutex_);
  std::vector<KeyId> keys;
  for (const auto& [id, state] : states_) {
    if (keys.empty() || keys.back() != id.first) keys.push_back(id.first);
  }
  return keys;
}

size_t StateStore::TotalBytes() const {
  MutexLock lock(&mutex_);
  size_t total = 0;
  for (const auto& [id, state] : states_) {
    for (const StateKind kind : kStateKinds) total += state.part(kind).values.size();
  }
  return total;
}

absl::Status StateStore::Save(const std::string& path) const {
  MutexLock lock(&mutex_);
  FileWriter writer(path);
  FileStreamBuffer buffer(&writer);
  std::ostream file(&buffer);
  WriteStates(states_, file);
  file.flush();
  const absl::Status written = writer.Commit();
  if (written.ok()) return written;
  return absl::Status(written.code(), absl::StrCat("codec states: ", written.message()));
}

std::string StateStore::Serialize() const {
  MutexLock lock(&mutex_);
  std::ostringstream file;
  // Else the stream swallows a std::bad_alloc that is thrown while it grows, and cuts off its
  // output.
  file.exceptions(std::ios::badbit);
  WriteStates(states_, file);
  return std::move(file).str();
}

absl::Status StateStore::Load(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  file.seekg(0, std::ios::end);
  if (!file.good()) {
    return absl::NotFoundError(absl::StrCat("codec states: cannot open ", path));
  }
  const auto bytes = static_cast<uint64_t>(file.tellg());
  file.seekg(0);
  return ReadFrom(path, file, bytes);
}

absl::Status StateStore::Parse(std::string_view content) {
  MemoryBuffer buffer(content);
  std::istream file(&buffer);
  return ReadFrom("codec states", file, content.size());
}

absl::Status StateStore::ReadFrom(const std::string& name, std::istream& file, uint64_t bytes) {
  SLIMPS_ASSIGN_OR_RETURN(CodecStates loaded, ReadStates(name, file, bytes));
  MutexLock lock(&mutex_);
  states_ = std::move(loaded);
  return absl::OkStatus();
}

absl::Status StateStore::Repartition(KeyId key, const PartitionGrid& from,
                                     const PartitionGrid& to) {
  MutexLock lock(&mutex_);
  return RepartitionStates(key, from, to, &states_);
}

}  // namespace slimps
