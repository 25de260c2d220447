// SPDX-License-Identifier: Apache-2.0
// c_api.h and c_api_calls.h: pushes and pulls of one key and of lists.
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "proto/base/status_macros.h"
#include "worker/capi/c_api_calls.h"
#include "worker/capi/c_api_handle.h"
#include "worker/capi/c_api_structs.h"
#include "worker/capi/c_api_support.h"
#include "worker/capi/listed_pulls.h"

namespace slimps {
namespace {

enum class Use { kPush, kPull, kPushPull };

absl::StatusOr<std::vector<std::span<const float>>> ToGradients(const std::string& what,
                                                                const float* const* gradients,
                                                                size_t devices, size_t elements) {
  SLIMPS_ASSIGN_OR_RETURN(const auto arrays, ToSpan(what.c_str(), gradients, devices));
  std::vector<std::span<const float>> values;
  values.reserve(devices);
  for (const float* array : arrays) {
    SLIMPS_ASSIGN_OR_RETURN(const auto one, ToSpan(what.c_str(), array, elements));
    values.push_back(one);
  }
  return values;
}

absl::StatusOr<Items> ToItems(const slimps_item* items, size_t count, Use use) {
  SLIMPS_ASSIGN_OR_RETURN(const auto given, ReadSizedArray("items", items, count));
  Items made;
  made.reserve(count);
  for (size_t i = 0; i < count; ++i) {
    const std::string what = absl::StrCat("items[", i, "].");
    absl::StatusOr<Key> key = ToKey(given[i].key);
    if (!key.ok()) return absl::InvalidArgumentError(what + std::string(key.status().message()));
    Item& item = made.emplace_back(Item{.key = *std::move(key)});
    if (use != Use::kPull) {
      SLIMPS_ASSIGN_OR_RETURN(item.gradients, ToGradients(what + "gradients", given[i].gradients,
                                                          given[i].devices, given[i].elements));
    }
    if (use != Use::kPush) {
      SLIMPS_ASSIGN_OR_RETURN(item.out,
                              ToSpan((what + "out").c_str(), given[i].out, given[i].elements));
    }
  }
  return made;
}

// Returns true if one of the pushes may have to wait.
bool AddPushes(const Items& items, SharedStore* store) {
  bool may_wait = false;
  if (store->is_local()) return may_wait;
  for (const Item& item : items) {
    if (item.gradients.empty()) continue;
    may_wait |= store->pushes().Add(item.key.id(), item.gradients[0].size_bytes());
  }
  return may_wait;
}

// Pushes what `prepare` returns, a StatusOr<Items>.
template <typename Prepare>
slimps_status Push(const char* function, const slimps_store* store, const Prepare& prepare,
                   int priority) noexcept {
  bool may_wait = false;
  std::shared_ptr<const Items> items;
  const slimps_status prepared = AskIdle(function, store, [&](KVStore*) -> absl::Status {
    SLIMPS_ASSIGN_OR_RETURN(Items made, prepare());
    may_wait = AddPushes(made, store->shared.get());
    items = std::make_shared<const Items>(std::move(made));
    return absl::OkStatus();
  });
  if (prepared != SLIMPS_OK) return prepared;
  const auto push = [items, priority](KVStore* open) { return PushAll(open, *items, priority); };
  return may_wait ? Await(function, store, push) : AskIdle(function, store, push);
}

// Pulls, or pushes and pulls, what `prepare` returns, a StatusOr<Items>.
template <typename Prepare>
slimps_status Pull(const char* function, const slimps_store* store, const Prepare& prepare, Use use,
                   int priority) noexcept {
  bool in_background = false, on_thread = false;
  std::shared_ptr<BackgroundCall> call;
  std::shared_ptr<ListedPulls> pulls;
  const slimps_status begun = AskIdle(function, store, [&](KVStore*) -> absl::Status {
    SLIMPS_ASSIGN_OR_RETURN(Items items, prepare());
    if (items.empty()) return absl::OkStatus();
    in_background = store->in_background();
    call = in_background ? store->call : std::make_shared<BackgroundCall>();
    on_thread = use == Use::kPushPull && AddPushes(items, store->shared.get()) && in_background;
    pulls = std::make_shared<ListedPulls>(function, store->shared.get(), call, std::move(items),
                                          priority);
    return call->Begin();
  });
  if (begun != SLIMPS_OK || pulls == nullptr) return begun;
  if (use == Use::kPull) {
    pulls->AskAll();
  } else if (!on_thread) {
    pulls->PushAndAskAll();
  } else {
    try {
      store->shared->RunOnThread([pulls] { pulls->PushAndAskAll(); });
    } catch (...) {
      call->End(OutcomeOfException(function));
    }
  }
  const slimps_status status = call->Return();
  return status == SLIMPS_UNDER_WAY && !in_background ? call->Finish(function) : status;
}

// Runs `pull(KVStore*, const Item&)` on the calling thread, which waits for what it pulls.
template <typename Prepare, typename Body>
slimps_status PullHere(const char* function, const slimps_store* store, const Prepare& prepare,
                       Body pull) noexcept {
  return AskIdle(function, store, [&](KVStore* open) -> absl::Status {
    SLIMPS_ASSIGN_OR_RETURN(const Items items, prepare());
    AddPushes(items, store->shared.get());
    const auto marks = MarksOf(*store->shared, items);
    SLIMPS_RETURN_IF_ERROR(pull(open, items[0]));
    store->shared->pushes().Acknowledged(marks);
    return absl::OkStatus();
  });
}

bool WaitsHere(const slimps_store* store) { return store == nullptr || !store->in_background(); }

absl::StatusOr<Items> OneItem(const slimps_key& key) {
  SLIMPS_ASSIGN_OR_RETURN(Key name, ToKey(key));
  return Items{{.key = std::move(name)}};
}

}  // namespace
}  // namespace slimps

using slimps::Items;
using slimps::OneItem;
using slimps::ToItems;
using slimps::ToSpan;
using slimps::Use;

extern "C" {

// ---- one key ------------------------------------------------------------------------------------

slimps_status slimps_push(slimps_store* store, slimps_key key, const float* gradient,
                          size_t elements, int32_t priority) {
  const auto item = [&]() -> absl::StatusOr<Items> {
    SLIMPS_ASSIGN_OR_RETURN(Items items, OneItem(key));
    SLIMPS_ASSIGN_OR_RETURN(const auto values, ToSpan("gradient", gradient, elements));
    items[0].gradients = {values};
    return items;
  };
  return slimps::Push(__func__, store, item, priority);
}

slimps_status slimps_push_sum(slimps_store* store, slimps_key key, const float* const* gradients,
                              size_t devices, size_t elements, int32_t priority) {
  const auto item = [&]() -> absl::StatusOr<Items> {
    SLIMPS_ASSIGN_OR_RETURN(Items items, OneItem(key));
    SLIMPS_ASSIGN_OR_RETURN(items[0].gradients,
                            slimps::ToGradients("gradients", gradients, devices, elements));
    return items;
  };
  return slimps::Push(__func__, store, item, priority);
}

slimps_status slimps_pull(slimps_store* store, slimps_key key, float* out, size_t elements,
                          int32_t priority) {
  const auto item = [&]() -> absl::StatusOr<Items> {
    SLIMPS_ASSIGN_OR_RETURN(Items items, OneItem(key));
    SLIMPS_ASSIGN_OR_RETURN(items[0].out, ToSpan("out", out, elements));
    return items;
  };
  if (!slimps::WaitsHere(store)) {
    return slimps::Pull(__func__, store, item, Use::kPull, priority);
  }
  return slimps::PullHere(__func__, store, item, [=](auto* open, const slimps::Item& one) {
    return open->Pull(one.key, one.out, priority);
  });
}

slimps_status slimps_pushpull(slimps_store* store, slimps_key key, const float* gradient,
                              float* out, size_t elements, int32_t priority) {
  const auto item = [&]() -> absl::StatusOr<Items> {
    SLIMPS_ASSIGN_OR_RETURN(Items items, OneItem(key));
    SLIMPS_ASSIGN_OR_RETURN(const auto values, ToSpan("gradient", gradient, elements));
    SLIMPS_ASSIGN_OR_RETURN(items[0].out, ToSpan("out", out, elements));
    items[0].gradients = {values};
    return items;
  };
  if (!slimps::WaitsHere(store)) {
    return slimps::Pull(__func__, store, item, Use::kPushPull, priority);
  }
  return slimps::PullHere(__func__, store, item, [=](auto* open, const slimps::Item& one) {
    return open->PushPull(one.key, one.gradients[0], one.out, priority);
  });
}

// ---- lists --------------------------------------------------------------------------------------

slimps_status slimps_push_list(slimps_store* store, const slimps_item* items, size_t count,
                               int32_t priority) {
  return slimps::Push(
      __func__, store, [=] { return ToItems(items, count, Use::kPush); }, priority);
}

slimps_status slimps_pull_list(slimps_store* store, const slimps_item* items, size_t count,
                               int32_t priority) {
  return slimps::Pull(
      __func__, store, [=] { return ToItems(items, count, Use::kPull); }, Use::kPull, priority);
}

slimps_status slimps_pushpull_list(slimps_store* store, const slimps_item* items, size_t count,
                                   int32_t priority) {
  return slimps::Pull(
      __func__, store, [=] { return ToItems(items, count, Use::kPushPull); }, Use::kPushPull,
      priority);
}

}  // extern "C"
