// SPDX-License-Identifier: Apache-2.0
// Waits for C++ calls from Python, without the GIL and so that signal handlers run (Ctrl-C).
//
//   Await(StartCall([store] { return store->Barrier(); }), [store] { store->Abort(kInterrupted);
//   });
//
// If a handler raises (usually KeyboardInterrupt), the wait ends: Await calls `cancel`, which must
// make the call end, and throws the exception once the call has ended.
#ifndef SLIMPS_PYTHON_EXTENSION_WAITING_H_
#define SLIMPS_PYTHON_EXTENSION_WAITING_H_

#include <cstddef>
#include <exception>
#include <functional>
#include <memory>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "proto/base/mutex.h"

namespace slimps::python {

// Some calls under way, and the error of the failed call with the lowest number. Thread-safe.
class Pending final {
 public:
  // The thread that finishes the last call runs `on_end` with that error (or OK). It holds no lock.
  explicit Pending(size_t calls, std::function<void(const absl::Status&)> on_end = nullptr)
      : calls_(calls), on_end_(std::move(on_end)) {}

  // Notes that call number `call` has ended. Ignored once all calls have ended.
  void Finish(size_t call, absl::Status status, std::exception_ptr thrown = nullptr);

  // Waits at most `timeout`. Returns true if all calls have ended.
  [[nodiscard]] bool AwaitEnd(absl::Duration timeout);

  // Returns the error, or throws the exception that a call has thrown (the first time only).
  // REQUIRES: all calls have ended; the caller holds the GIL.
  absl::Status TakeResult();

 private:
  const size_t calls_;
  const std::function<void(const absl::Status&)> on_end_;
  mutable Mutex mutex_;
  CondVar changed_;
  size_t ended_ ABSL_GUARDED_BY(mutex_) = 0;
  size_t first_failed_ ABSL_GUARDED_BY(mutex_) = 0;
  absl::Status status_ ABSL_GUARDED_BY(mutex_);
  std::exception_ptr thrown_ ABSL_GUARDED_BY(mutex_);
};

// Runs `call` on a thread of its own, which ends with the call. The call may outlive its caller, so
// `call` must share the ownership of everything that it uses.
std::shared_ptr<Pending> StartCall(std::function<absl::Status()> call);

enum class Cancelled { kEnded, kStillUnderWay };

// Waits for `pending` and raises its error. If a signal handler raises, it calls `cancel`, gives
// `pending` a few seconds to end, tells `on_cancelled` whether it has ended, and throws what the
// handler raised.
// REQUIRES: the caller holds the GIL, which Await releases while it waits and while `cancel` runs.
void Await(const std::shared_ptr<Pending>& pending, const std::function<void()>& cancel,
           const std::function<void(Cancelled)>& on_cancelled = nullptr);

}  // namespace slimps::python

#endif  // SLIMPS_PYTHON_EXTENSION_WAITING_H_
