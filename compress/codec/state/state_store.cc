// SPDX-License-Identifier: Apache-2.0
#include "compress/codec/state/state_store.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "compress/codec/state/state_file.h"
#include "compress/codec/state/state_repartition.h"
#include "proto/base/status_macros.h"

namespace slimps {

absl::StatusOr<CodecState*> StateStore::StateOf(KeyId key, uint32_t partition, size_t elements) {
  CodecState& state = states_.try_emplace(CodecStateId(key, partition), elements).first->second;
  if (state.elements() == elements) return &state;
  return absl::FailedPreconditionError(absl::StrCat("codec state of key ", absl::Hex(key),
                                                    ", partition ", partition, ": expected ",
                                                    state.elements(), " elements, got ", elements));
}

absl::StatusOr<std::span<float>> StateStore::Keep(KeyId key, size_t elements) {
  MutexLock lock(&mutex_);
  SLIMPS_ASSIGN_OR_RETURN(CodecState* const state, StateOf(key, /*partition=*/0, elements));
  state->AddZeros(StateKind::kResidual);
  return state->residual();
}

absl::StatusOr<CodecState*> StateStore::Prepare(const Codec& codec, KeyId key, uint32_t partition,
                                                EncodeInput& input) {
  if (!codec.wants_residual() && !codec.wants_momentum() && Find(key, partition) == nullptr) {
    return nullptr;
  }
  MutexLock lock(&mutex_);
  SLIMPS_ASSIGN_OR_RETURN(CodecState* const state, StateOf(key, partition, input.gradient.size()));
  state->LendTo(codec, input);
  return state;
}

CodecState* StateStore::Find(KeyId key, uint32_t partition) {
  MutexLock lock(&mutex_);
  const auto entry = states_.find(CodecStateId(key, partition));
  return entry == states_.end() ? nullptr : &entry->second;
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

std::string StateStore::Serialize() const {
  MutexLock lock(&mutex_);
  return BuildStates(states_);
}

absl::Status StateStore::Parse(std::string_view content) {
  SLIMPS_ASSIGN_OR_RETURN(CodecStates parsed, ParseStates(content));
  MutexLock lock(&mutex_);
  states_ = std::move(parsed);
  return absl::OkStatus();
}

void StateStore::Forget(KeyId key) {
  MutexLock lock(&mutex_);
  std::erase_if(states_, [key](const auto& state) { return state.first.first == key; });
}

absl::Status StateStore::Repartition(KeyId key, const PartitionGrid& from,
                                     const PartitionGrid& to) {
  MutexLock lock(&mutex_);
  return RepartitionStates(key, from, to, &states_);
}

}  // namespace slimps
