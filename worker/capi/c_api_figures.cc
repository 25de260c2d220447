// SPDX-License-Identifier: Apache-2.0
// c_api.h: what a store has counted, decided and keeps between rounds.
#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <new>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "proto/base/status_macros.h"
#include "worker/activity.h"
#include "worker/capi/c_api.h"
#include "worker/capi/c_api_handle.h"
#include "worker/capi/c_api_structs.h"
#include "worker/capi/c_api_support.h"

namespace {

using slimps::Ask;
using slimps::Await;
using slimps::CheckPointer;
using slimps::KVStore;

slimps_totals Convert(const slimps::StoreTotals& totals) {
  slimps_totals made = {};
  made.elements_pushed = totals.pushed.elements;
  made.elements_sent = totals.pushed.elements_sent;
  made.bytes_pushed = totals.bytes_pushed;
  made.bytes_pulled = totals.bytes_pulled;
  made.bytes_shared = totals.bytes_shared;
  made.changes_pulled = totals.changes_pulled;
  made.copy_s = absl::ToDoubleSeconds(totals.copy);
  made.encode_s = absl::ToDoubleSeconds(totals.encode);
  made.send_s = absl::ToDoubleSeconds(totals.send);
  made.wait_s = absl::ToDoubleSeconds(totals.wait);
  made.decode_s = absl::ToDoubleSeconds(totals.decode);
  made.compression_gain = totals.pushed.CompressionGain();
  made.compression_error = totals.pushed.CompressionError();
  return made;
}

// The texts of this thread's last slimps_get_decision.
thread_local std::string codec, pull_codec, policy, reason;

// The codecs of this thread's last slimps_get_key_codecs.
thread_local std::vector<slimps::KeyCodec> key_codecs;

slimps_decision Convert(const std::optional<slimps::wire::CodecMap>& map) {
  codec = map.has_value() ? map->codec() : "";
  pull_codec = map.has_value() ? map->pull_codec() : "";
  policy = map.has_value() ? map->policy() : "";
  reason = map.has_value() ? map->reason() : "";
  slimps_decision made = {};
  made.policy = policy.c_str();
  made.reason = reason.c_str();
  made.codec = codec.c_str();
  made.pull_codec = pull_codec.c_str();
  made.threshold_bytes = made.pull_threshold_bytes = SLIMPS_NOT_COMPRESSED;
  if (!map.has_value()) return made;
  made.is_decided = 1;
  made.from_round = map->from_round();
  if (map->has_threshold()) made.threshold_bytes = map->threshold_bytes();
  if (map->has_pull_threshold()) made.pull_threshold_bytes = map->pull_threshold_bytes();
  return made;
}

template <typename Struct, typename Get>
slimps_status Fill(const char* function, const slimps_store* store, const char* what, Struct* out,
                   Get get) noexcept {
  return Ask(function, store, [=](KVStore* open) -> absl::Status {
    SLIMPS_RETURN_IF_ERROR(CheckPointer(what, out));
    return slimps::FillSized(what, Convert(get(*open)), out);
  });
}

// Copies what `save` returns (a StatusOr<std::string>) into memory that the caller will free.
template <typename Save>
slimps_status SaveInto(const char* function, slimps_store* store, void** content, size_t* bytes,
                       Save save) noexcept {
  return Await(function, store, [=](KVStore* open) -> absl::Status {
    SLIMPS_RETURN_IF_ERROR(CheckPointer("content", content));
    SLIMPS_RETURN_IF_ERROR(CheckPointer("bytes", bytes));
    SLIMPS_ASSIGN_OR_RETURN(const std::string saved, save(open));
    void* copy = std::malloc(saved.size());
    if (copy == nullptr && !saved.empty()) throw std::bad_alloc();
    std::memcpy(copy, saved.data(), saved.size());
    *content = copy;
    *bytes = saved.size();
    return absl::OkStatus();
  });
}

template <typename Load>
slimps_status LoadFrom(const char* function, slimps_store* store, const void* content, size_t bytes,
                       Load load) noexcept {
  return Await(function, store, [=](KVStore* open) -> absl::Status {
    SLIMPS_ASSIGN_OR_RETURN(const std::span<const char> given,
                            slimps::ToSpan("content", static_cast<const char*>(content), bytes));
    return load(open, std::string_view(given.data(), given.size()));
  });
}

struct GivenStates {
  std::vector<slimps::Key> keys;
  std::vector<slimps::LentOptimizerState> states;
};

absl::StatusOr<GivenStates> ToStates(const slimps_optimizer_state* states, size_t count) {
  SLIMPS_ASSIGN_OR_RETURN(const auto given, slimps::ReadSizedArray("states", states, count));
  GivenStates made;
  for (const slimps_optimizer_state& one : given) {
    SLIMPS_ASSIGN_OR_RETURN(slimps::Key key, slimps::ToKey(one.key));
    slimps::LentOptimizerState& state = made.states.emplace_back();
    for (size_t i = 0; i < state.tensors.size(); ++i) {
      if (one.tensors[i] == nullptr) continue;
      SLIMPS_ASSIGN_OR_RETURN(state.tensors[i],
                              slimps::ToSpan("tensors", one.tensors[i], one.elements));
    }
    if (one.count > state.tensors.size()) {
      return absl::InvalidArgumentError(absl::StrCat("states: key ", key.typed_name(),
                                                     ": expected at most ", state.tensors.size(),
                                                     " tensors, got count ", one.count));
    }
    state.count = static_cast<uint32_t>(one.count);
    state.updates = one.updates;
    made.keys.push_back(std::move(key));
  }
  return made;
}

}  // namespace

extern "C" {

slimps_status slimps_save_optimizer_states(slimps_store* store, void** content, size_t* bytes) {
  return SaveInto(__func__, store, content, bytes,
                  [](KVStore* open) { return open->SaveOptimizerStates(); });
}

slimps_status slimps_load_optimizer_states(slimps_store* store, const void* content, size_t bytes) {
  return LoadFrom(__func__, store, content, bytes, [](KVStore* open, std::string_view given) {
    return open->LoadOptimizerStates(given);
  });
}

slimps_status slimps_pull_optimizer_states(slimps_store* store, slimps_optimizer_state* states,
                                           size_t count) {
  return Await(__func__, store, [=](KVStore* open) -> absl::Status {
    SLIMPS_ASSIGN_OR_RETURN(GivenStates given, ToStates(states, count));
    SLIMPS_RETURN_IF_ERROR(open->PullOptimizerStates(given.keys, given.states));
    for (size_t i = 0; i < count; ++i) {
      auto* const one = reinterpret_cast<slimps_optimizer_state*>(reinterpret_cast<char*>(states) +
                                                                  i * states->struct_size);
      one->count = given.states[i].count;
      one->updates = given.states[i].updates;
      one->round = given.states[i].round;
    }
    return absl::OkStatus();
  });
}

slimps_status slimps_put_optimizer_states(slimps_store* store, const slimps_optimizer_state* states,
                                          size_t count) {
  return Await(__func__, store, [=](KVStore* open) -> absl::Status {
    const absl::StatusOr<GivenStates> given = ToStates(states, count);
    if (!given.ok()) return open->PutOptimizerStates({}, {}, given.status());
    return open->PutOptimizerStates(given->keys, given->states, absl::OkStatus());
  });
}

slimps_status slimps_save_residuals(slimps_store* store, void** content, size_t* bytes) {
  return SaveInto(__func__, store, content, bytes,
                  [](KVStore* open) { return open->SaveResiduals(); });
}

slimps_status slimps_load_residuals(slimps_store* store, const void* content, size_t bytes) {
  return LoadFrom(__func__, store, content, bytes,
                  [](KVStore* open, std::string_view given) { return open->LoadResiduals(given); });
}

slimps_status slimps_save(slimps_store* store, const char* folder, const void* own_state,
                          size_t bytes) {
  return Await(__func__, store, [=](KVStore* open) -> absl::Status {
    SLIMPS_RETURN_IF_ERROR(slimps::CheckText("folder", folder));
    SLIMPS_ASSIGN_OR_RETURN(
        const std::span<const char> own,
        slimps::ToSpan("own_state", static_cast<const char*>(own_state), bytes));
    return open->Save(folder, std::string_view(own.data(), own.size()));
  });
}

slimps_status slimps_await_saved(slimps_store* store) {
  return Await(__func__, store, [](KVStore* open) { return open->AwaitSaved(); });
}

slimps_status slimps_load(slimps_store* store, const char* folder, void** own_state, size_t* bytes,
                          uint64_t* rounds) {
  return SaveInto(__func__, store, own_state, bytes,
                  [=](KVStore* open) -> absl::StatusOr<std::string> {
                    SLIMPS_RETURN_IF_ERROR(CheckPointer("rounds", rounds));
                    SLIMPS_RETURN_IF_ERROR(slimps::CheckText("folder", folder));
                    SLIMPS_ASSIGN_OR_RETURN(slimps::LoadedCheckpoint found, open->Load(folder));
                    *rounds = found.rounds;
                    return std::move(found.own_state);
                  });
}

slimps_status slimps_get_totals(const slimps_store* store, slimps_totals* totals) {
  return Fill(__func__, store, "totals", totals, [](const KVStore& open) { return open.totals(); });
}

slimps_status slimps_get_decision(const slimps_store* store, slimps_decision* decision) {
  return Fill(__func__, store, "decision", decision,
              [](const KVStore& open) { return open.codec_map(); });
}

slimps_status slimps_get_key_codecs(const slimps_store* store, slimps_key_codec* codecs,
                                    size_t room, size_t* count) {
  return Ask(__func__, store, [=](KVStore* open) -> absl::Status {
    SLIMPS_ASSIGN_OR_RETURN(const auto target, slimps::ToSpan("codecs", codecs, room));
    SLIMPS_RETURN_IF_ERROR(CheckPointer("count", count));
    key_codecs = open->key_codecs();
    *count = key_codecs.size();
    for (size_t i = 0; i < std::min(*count, room); ++i) {
      const slimps::KeyCodec& one = key_codecs[i];
      target[i] = {slimps::FromKey(one.key), one.codec.c_str(), one.reason.c_str()};
    }
    return absl::OkStatus();
  });
}

slimps_status slimps_get_threshold_table(const slimps_store* store, slimps_threshold_row* rows,
                                         size_t room, size_t* count) {
  return Ask(__func__, store, [=](KVStore* open) -> absl::Status {
    SLIMPS_ASSIGN_OR_RETURN(const auto target, slimps::ToSpan("rows", rows, room));
    SLIMPS_RETURN_IF_ERROR(CheckPointer("count", count));
    const slimps::wire::CodecMap map = open->codec_map().value_or(slimps::wire::CodecMap());
    *count = static_cast<size_t>(map.table_size());
    for (size_t i = 0; i < std::min(*count, room); ++i) {
      const slimps::wire::ThresholdRow& row = map.table(static_cast<int>(i));
      target[i] = {.is_pull = row.direction() == slimps::wire::PULL ? uint64_t{1} : 0,
                   .bytes = row.bytes(),
                   .t_c_ms = row.t_c_ms(),
                   .t_cq_ms = row.t_cq_ms(),
                   .t_pq_ms = row.t_pq_ms()};
    }
    return absl::OkStatus();
  });
}

slimps_status slimps_note_position(slimps_store* store, const char* where) {
  return Ask(__func__, store, [where](KVStore* open) -> absl::Status {
    SLIMPS_RETURN_IF_ERROR(slimps::CheckText("where", where));
    slimps::Activity* const activity = open->activity();  // null: nobody asks
    if (activity != nullptr) activity->NotePosition(where);
    return absl::OkStatus();
  });
}

}  // extern "C"
