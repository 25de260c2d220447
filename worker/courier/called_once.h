// SPDX-License-Identifier: Apache-2.0
// A callback that is called exactly once, whatever becomes of its owner. Without it, a caller would
// wait for ever for an answer that an exception dropped.
//
//   CalledOnce<Answer> done = [](Answer answer) { ... };
//   done(std::move(answer));   // else the last copy's destructor calls it with Dropped<Answer>()
//
// Thread-compatible. The callback must not throw when the destructor calls it: an exception may be
// under way.
#ifndef SLIMPS_WORKER_COURIER_CALLED_ONCE_H_
#define SLIMPS_WORKER_COURIER_CALLED_ONCE_H_

#include <concepts>
#include <functional>
#include <memory>
#include <new>
#include <utility>

#include "absl/status/status.h"

namespace slimps {

// The answer of a callback that was dropped. The first CalledOnce makes it, before memory runs out.
inline const absl::Status& DroppedStatus() {
  static const absl::Status& status = *new absl::Status(
      absl::StatusCode::kResourceExhausted, "given up: out of memory; the store has failed");
  return status;
}

template <typename Result>
Result Dropped() {
  return Result{.status = DroppedStatus()};
}
template <>
inline absl::Status Dropped<absl::Status>() {
  return DroppedStatus();
}

template <typename Result>
class CalledOnce final {
 public:
  CalledOnce() = default;  // calls nothing
  template <typename Callback>
  requires std::invocable<Callback&, Result> &&(!std::same_as<Callback, CalledOnce>)
      CalledOnce(Callback callback)  // NOLINT: implicit, as std::function is
      : CalledOnce(std::function<void(Result)>(std::move(callback)), FromFunction()) {}

  void operator()(Result result) const {
    if (shared_ == nullptr || shared_->callback == nullptr) return;
    std::exchange(shared_->callback, nullptr)(std::move(result));
  }

 private:
  struct FromFunction {};
  struct Shared {
    ~Shared() {
      if (callback == nullptr) return;
      try {
        callback(Dropped<Result>());
      } catch (const std::bad_alloc&) {  // nobody can catch what a destructor throws
      }
    }
    std::function<void(Result)> callback;
  };

  CalledOnce(std::function<void(Result)> callback, FromFunction) {
    if (callback == nullptr) return;
    (void)DroppedStatus();
    try {
      shared_ = std::make_shared<Shared>();
    } catch (const std::bad_alloc&) {
      callback(Dropped<Result>());
      throw;
    }
    shared_->callback = std::move(callback);
  }

  std::shared_ptr<Shared> shared_;
};

}  // namespace slimps

#endif  // SLIMPS_WORKER_COURIER_CALLED_ONCE_H_
