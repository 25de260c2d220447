// SPDX-License-Identifier: Apache-2.0
// c_api.h and c_api_calls.h: pushes and pulls of one key and of lists.
#include <algorithm>
#include <memory>
#include <string>
#include <utility>

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

absl::StatusOr<Gradients> ToGradients(const float* const* gradients, size_t devices,
                                      size_t elements) {
  SLIMPS_ASSIGN_OR_RETURN(const auto arrays, ToSpan("gradients", gradients, devices));
  Gradients values;
  values.reserve(devices);
  for (const float* array : arrays) {
    SLIMPS_ASSIGN_OR_RETURN(const auto one, ToSpan("gradients", array, elements));
    values.push_back(one);
  }
  return values;
}

absl::Status ReadArrays(const slimps_item& given, Use use, Item* item) {
  if (use != Use::kPull) {
    SLIMPS_ASSIGN_OR_RETURN(item->gradients,
                            ToGradients(given.gradients, given.devices, given.elements));
    for (size_t i = 0; given.places != nullptr && i < given.devices; ++i) {
      SLIMPS_ASSIGN_OR_RETURN(const Place place,
                              ToPlace("places", given.places[i], SLIMPS_LENT, given.gradients[i]));
      item->places.push_back(place);
      item->lent = item->lent || given.places[i].kind == SLIMPS_LENT;
    }
  }
  if (use == Use::kPush) return absl::OkStatus();
  SLIMPS_ASSIGN_OR_RETURN(item->out, ToSpan("out", given.out, given.elements));
  if (given.out_place != nullptr) {
    SLIMPS_ASSIGN_OR_RETURN(item->out_place,
                            ToPlace("out_place", *given.out_place, SLIMPS_CUDA, given.out));
  }
  return absl::OkStatus();
}

absl::StatusOr<Items> ToItems(const slimps_item* items, size_t count, Use use) {
  SLIMPS_ASSIGN_OR_RETURN(const auto given, ReadSizedArray("items", items, count));
  Items made;
  made.reserve(count);
  for (size_t i = 0; i < given.size(); ++i) {
    const auto refused = [i](const absl::Status& why) {
      return absl::InvalidArgumentError(absl::StrCat("items[", i, "].", why.message()));
    };
    absl::StatusOr<Key> key = ToKey(given[i].key);
    if (!key.ok()) return refused(key.status());
    made.emplace_back(*std::move(key));
    const absl::Status read = ReadArrays(given[i], use, &made.back());
    if (!read.ok()) return refused(read);
  }
  return made;
}

// Returns true if a thread of the library has to push the items, since pushes may have to wait.
bool NeedsThread(const slimps_store& store, const Items& items) {
  if (!store.in_background()) return false;
  size_t bytes = 0;
  for (const Item& item : items) {
    if (item.awaits) return true;
    if (!item.gradients.empty()) bytes += item.gradients[0].size_bytes();
  }
  return store.shared->store()->push_may_wait(bytes);
}

// Pushes what `prepare` returns, a StatusOr<Items>.
template <typename Prepare>
slimps_status Push(const char* function, const slimps_store* store, const Prepare& prepare,
                   int priority) noexcept {
  std::shared_ptr<const Items> left;  // for a thread
  const slimps_status status = AskIdle(function, store, [&](KVStore* open) -> absl::Status {
    SLIMPS_ASSIGN_OR_RETURN(Items items, prepare());
    if (!NeedsThread(*store, items)) return PushAll(open, items, priority);
    left = std::make_shared<const Items>(std::move(items));
    return absl::OkStatus();
  });
  if (left == nullptr) return status;
  return Await(function, store,
               [left, priority](KVStore* open) { return PushAll(open, *left, priority); });
}

// Pulls, or pushes and pulls, what `prepare` returns, a StatusOr<Items>.
template <typename Prepare>
slimps_status Pull(const char* function, const slimps_store* store, const Prepare& prepare, Use use,
                   int priority) noexcept {
  bool in_background = false, on_thread = false;
  std::shared_ptr<BackgroundCall> call;
  std::shared_ptr<ListedPulls> pulls;
  const slimps_status begun = AskIdle(function, store, [&](KVStore* open) -> absl::Status {
    SLIMPS_ASSIGN_OR_RETURN(Items items, prepare());
    if (items.empty()) return absl::OkStatus();
    in_background = store->in_background();
    call = in_background ? store->call : std::make_shared<BackgroundCall>();
    on_thread = use == Use::kPushPull && NeedsThread(*store, items);
    pulls = std::make_shared<ListedPulls>(function, open, call, std::move(items), priority);
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
    return pull(open, items[0]);
  });
}

bool WaitsHere(const slimps_store* store) { return store == nullptr || !store->in_background(); }

bool IsOnHost(const float* array) { return PlaceOf(array).on_host(); }

// Notes which gradients lie on GPUs. The call returns when they have been read.
void FindPlaces(Item* item) {
  if (std::ranges::all_of(item->gradients, IsOnHost, &std::span<const float>::data)) return;
  for (const std::span<const float> gradient : item->gradients) {
    item->places.push_back(PlaceOf(gradient.data()));
  }
  item->awaits = true;
}

absl::StatusOr<Items> OneItem(const slimps_key& key) {
  SLIMPS_ASSIGN_OR_RETURN(Key name, ToKey(key));
  Items items;
  items.emplace_back(std::move(name));
  return items;
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
    slimps::FindPlaces(&items[0]);
    return items;
  };
  return slimps::Push(__func__, store, item, priority);
}

slimps_status slimps_push_sum(slimps_store* store, slimps_key key, const float* const* gradients,
                              size_t devices, size_t elements, int32_t priority) {
  const auto item = [&]() -> absl::StatusOr<Items> {
    SLIMPS_ASSIGN_OR_RETURN(Items items, OneItem(key));
    SLIMPS_ASSIGN_OR_RETURN(items[0].gradients, slimps::ToGradients(gradients, devices, elements));
    slimps::FindPlaces(&items[0]);
    return items;
  };
  return slimps::Push(__func__, store, item, priority);
}

slimps_status slimps_pull(slimps_store* store, slimps_key key, float* out, size_t elements,
                          int32_t priority) {
  const auto item = [&]() -> absl::StatusOr<Items> {
    SLIMPS_ASSIGN_OR_RETURN(Items items, OneItem(key));
    SLIMPS_ASSIGN_OR_RETURN(items[0].out, ToSpan("out", out, elements));
    items[0].out_place = slimps::PlaceOf(out);
    return items;
  };
  if (!slimps::WaitsHere(store) || !slimps::IsOnHost(out)) {
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
    items[0].out_place = slimps::PlaceOf(out);
    slimps::FindPlaces(&items[0]);
    return items;
  };
  if (!slimps::WaitsHere(store) || !slimps::IsOnHost(gradient) || !slimps::IsOnHost(out)) {
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
