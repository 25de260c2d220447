// SPDX-License-Identifier: Apache-2.0
// ListedPulls: the pulls of one call, perhaps each behind a push. The call ends when all have been
// answered, with the error of the first key that has one.
//
//   const auto pulls = std::make_shared<ListedPulls>(function, store, call, items, priority);
//   SLIMPS_RETURN_IF_ERROR(call->Begin());
//   pulls->AskAll();                         // or pulls->PushAndAskAll()
//   return call->Return();
//
// Thread-safe.
#ifndef SLIMPS_WORKER_CAPI_LISTED_PULLS_H_
#define SLIMPS_WORKER_CAPI_LISTED_PULLS_H_

#include <cstddef>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/inlined_vector.h"
#include "absl/status/status.h"
#include "proto/base/key.h"
#include "proto/base/mutex.h"
#include "worker/activity.h"
#include "worker/capi/background_call.h"
#include "worker/capi/c_api_outcome.h"
#include "worker/device/place.h"
#include "worker/kvstore.h"

namespace slimps {

// A call of one key and device allocates neither.
using Gradients = absl::InlinedVector<std::span<const float>, 1>;  // one per device

// One key of a call, with the caller's arrays.
struct Item {
  explicit Item(Key of) : key(std::move(of)) {}

  Key key;
  Gradients gradients;
  std::span<float> out;
  std::vector<Place> places = {};  // of the gradients; empty: on the host
  bool lent = false;               // a gradient on the host need not be copied
  bool awaits = false;             // the push ends when the gradients on GPUs have been read
  Place out_place = {};
};
using Items = absl::InlinedVector<Item, 1>;

// Pushes the items in order, up to the first that is refused.
absl::Status PushAll(KVStore* store, const Items& items, int priority);

class ListedPulls final : public std::enable_shared_from_this<ListedPulls> {
 public:
  // REQUIRES: `items` is not empty. `store` outlives the call.
  ListedPulls(const char* function, KVStore* store, std::shared_ptr<BackgroundCall> call,
              Items items, int priority);

  // Starts all pulls and returns.
  void AskAll() noexcept;

  // Pushes each item and starts its pull as soon as it is pushed. If an item's `out` may overlap
  // another item's arrays, all pushes come first. After a push that is refused, the items behind it
  // are neither pushed nor pulled.
  // InvalidArgument: two items' arrays overlap, and some are on a GPU or on loan: they may be read
  // after they were pushed. Nothing is pushed.
  void PushAndAskAll() noexcept;

 private:
  absl::Status CheckApart() const;
  void Ask(size_t index) noexcept;
  void Answer(size_t index, Outcome outcome) noexcept;

  const char* const function_;
  KVStore* const store_;
  const Activity::Call noted_;  // until all pulls are answered
  const std::shared_ptr<BackgroundCall> call_;
  const Items items_;
  const int priority_;
  const bool apart_;
  Mutex mutex_;
  size_t answered_ ABSL_GUARDED_BY(mutex_) = 0;
  size_t failed_ ABSL_GUARDED_BY(mutex_) = 0;  // index of `outcome_`, if that is an error
  Outcome outcome_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace slimps

#endif  // SLIMPS_WORKER_CAPI_LISTED_PULLS_H_
