// SPDX-License-Identifier: Apache-2.0
#include "compress/codec/state/state_store.h"

#include <algorithm>
#include <limits>

#include "absl/strings/str_cat.h"
#include "proto/base/status_macros.h"

namespace slimps {
namespace {

absl::Status WrongLength(KeyId key, uint32_t partition, size_t expected, size_t got) {
  return absl::FailedPreconditionError(absl::StrCat("codec state of key ", absl::Hex(key),
                                                    ", partition ", partition, ": expected ",
                                                    expected, " elements, got ", got));
}

}  // namespace

void CodecState::Part::AddZeros(size_t elements) {
  if (values.size() == elements * sizeof(float)) return;
  values = AlignedBuffer::OfFloats(elements);
  std::ranges::fill(values.floats(), 0.0f);
}

void CodecState::NoteEncoded(const EncodeStats& stats) {
  residual_.bound = stats.ResidualBound();
  if (momentum_given_) momentum_.bound = stats.momentum_bound;
}

void CodecState::ForgetBounds() {
  residual_.bound = std::numeric_limits<float>::infinity();
  momentum_.bound = std::numeric_limits<float>::infinity();
}

absl::StatusOr<CodecState*> StateStore::Entry(KeyId key, uint32_t partition, size_t elements) {
  MutexLock lock(&mutex_);
  const auto [entry, created] = states_.try_emplace(Id(key, partition));
  CodecState& state = entry->second;
  if (created) state.elements_ = elements;
  if (state.elements_ != elements) return WrongLength(key, partition, state.elements_, elements);
  return &state;
}

absl::StatusOr<CodecState*> StateStore::Prepare(const Codec& codec, KeyId key, uint32_t partition,
                                                EncodeInput& input) {
  const size_t elements = input.gradient.size();
  if (!codec.wants_residual() && !codec.wants_momentum() && Find(key, partition) == nullptr) {
    return nullptr;
  }
  SLIMPS_ASSIGN_OR_RETURN(CodecState* const state, Entry(key, partition, elements));
  if (codec.wants_residual()) state->residual_.AddZeros(elements);
  if (codec.wants_momentum()) state->momentum_.AddZeros(elements);
  input.residual = state->residual();
  input.residual_bound = state->residual_.bound;
  state->momentum_given_ = codec.wants_momentum();
  if (state->momentum_given_) {
    input.momentum = state->momentum();
    input.momentum_bound = state->momentum_.bound;
  }
  return state;
}

absl::StatusOr<CodecState*> StateStore::GetOrCreate(KeyId key, uint32_t partition, size_t elements,
                                                    Momentum momentum) {
  SLIMPS_ASSIGN_OR_RETURN(CodecState* const state, Entry(key, partition, elements));
  state->residual_.AddZeros(elements);
  if (momentum == Momentum::kWanted) state->momentum_.AddZeros(elements);
  return state;
}

CodecState* StateStore::Find(KeyId key, uint32_t partition) {
  MutexLock lock(&mutex_);
  const auto entry = states_.find(Id(key, partition));
  return entry == states_.end() ? nullptr : &entry->second;
}

void StateStore::Clear() {
  MutexLock lock(&mutex_);
  states_.clear();
}

void StateStore::ReplaceBy(StateStore&& other) {
  States taken;
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
    total += state.residual_.values.size() + state.momentum_.values.size();
  }
  return total;
}

}  // namespace slimps
