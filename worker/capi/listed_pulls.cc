// SPDX-License-Identifier: Apache-2.0
#include "worker/capi/listed_pulls.h"

#include <algorithm>
#include <functional>
#include <utility>
#include <vector>

#include "proto/base/awaited.h"
#include "proto/base/status_macros.h"

namespace slimps {
namespace {

// Returns true if no item's `out` overlaps an array of another item.
bool AreApart(const Items& items) {
  struct Extent {
    const float* begin;
    const float* end;
    size_t item;
    bool is_out;
  };
  std::vector<Extent> extents;
  const auto add = [&](std::span<const float> array, size_t item, bool is_out) {
    extents.push_back({array.data(), array.data() + array.size(), item, is_out});
  };
  for (size_t i = 0; i < items.size(); ++i) {
    for (const std::span<const float> gradient : items[i].gradients) add(gradient, i, false);
    add(items[i].out, i, true);
  }
  std::ranges::sort(extents, std::less<>(), &Extent::begin);
  // The extents that reach farthest so far, of all and of the outs. If `next` overlaps any earlier
  // one, it overlaps this one too. If only the earlier one is of another item, it overlaps the
  // farthest, which was found before.
  const Extent* any = nullptr;
  const Extent* out = nullptr;
  for (const Extent& next : extents) {
    const Extent* const before = next.is_out ? any : out;
    if (before != nullptr && next.begin < before->end && next.item != before->item) return false;
    if (any == nullptr || next.end > any->end) any = &next;
    if (next.is_out && (out == nullptr || next.end > out->end)) out = &next;
  }
  return true;
}

absl::Status PushItem(KVStore* store, const Item& item, int priority) {
  if (!item.lent && std::ranges::all_of(item.places, &Place::on_host)) {
    return store->PushSum(item.key, item.gradients, priority);
  }
  Awaited returned;
  std::vector<LentGradient> lent;
  for (size_t i = 0; i < item.gradients.size(); ++i) {
    lent.push_back({.values = item.gradients[i], .place = item.places[i], .returned = nullptr});
  }
  // All gradients of a push come back together.
  if (item.awaits) lent.back().returned = returned.Callback();
  SLIMPS_RETURN_IF_ERROR(store->PushLent(item.key, std::move(lent), priority));
  return item.awaits ? returned.Await() : absl::OkStatus();
}

}  // namespace

absl::Status PushAll(KVStore* store, const Items& items, int priority) {
  for (const Item& item : items) {
    SLIMPS_RETURN_IF_ERROR(PushItem(store, item, priority));
  }
  return absl::OkStatus();
}

ListedPulls::ListedPulls(const char* function, KVStore* store, std::shared_ptr<BackgroundCall> call,
                         Items items, int priority)
    : function_(function),
      store_(store),
      noted_(store->activity(), "Pull"),
      call_(std::move(call)),
      items_(std::move(items)),
      priority_(priority),
      apart_(AreApart(items_)) {}

void ListedPulls::AskAll() noexcept {
  for (size_t i = 0; i < items_.size(); ++i) Ask(i);
}

absl::Status ListedPulls::CheckApart() const {
  const auto leaves_host = [](const Item& item) {
    return item.lent || !item.out_place.on_host() ||
           !std::ranges::all_of(item.places, &Place::on_host);
  };
  if (apart_ || std::ranges::none_of(items_, leaves_host)) return absl::OkStatus();
  return absl::InvalidArgumentError(
      "items: two share memory; expected arrays that do not overlap, since some are on a GPU or on "
      "loan");
}

void ListedPulls::PushAndAskAll() noexcept {
  Outcome pushed = Caught(function_, [this] { return CheckApart(); });
  size_t asked = 0;
  for (size_t i = 0; i < items_.size() && pushed.status == SLIMPS_OK; ++i) {
    pushed = Caught(function_, [&] { return PushItem(store_, items_[i], priority_); });
    if (pushed.status == SLIMPS_OK && apart_) Ask(asked++);
  }
  if (pushed.status == SLIMPS_OK) {
    while (asked < items_.size()) Ask(asked++);
    return;
  }
  // The other items are not pulled. They have no error of their own.
  for (size_t i = items_.size(); i > asked + 1; --i) Answer(i - 1, {});
  Answer(asked, std::move(pushed));
}

void ListedPulls::Ask(size_t index) noexcept {
  // Every pull is answered, also one that cannot be started: those that were started before still
  // write into the caller's arrays.
  try {
    const Item& item = items_[index];
    store_->PullTo(item.key,
                   {.values = item.out,
                    .place = item.out_place,
                    .done =
                        [self = shared_from_this(), index](const absl::Status& status) {
                          self->Answer(index, OutcomeOf(self->function_, status));
                        }},
                   priority_);
  } catch (...) {
    Answer(index, OutcomeOfException(function_));
  }
}

void ListedPulls::Answer(size_t index, Outcome outcome) noexcept {
  Outcome result;
  {
    MutexLock lock(&mutex_);
    if (outcome.status != SLIMPS_OK && (outcome_.status == SLIMPS_OK || index < failed_)) {
      failed_ = index;
      outcome_ = std::move(outcome);
    }
    if (++answered_ < items_.size()) return;
    result = std::move(outcome_);
  }
  call_->End(std::move(result));
}

}  // namespace slimps
