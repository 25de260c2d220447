// Waiting for C++ from Python: without the GIL, and so that signal handlers run meanwhile (Ctrl-C).
//
//   Await(StartCall([store] { return store->Barrier(); }), [store] { store->Abort(kInterrupted); });
//
// A handler that raises (KeyboardInterrupt, mostly) ends the wait: `cancel` is called, which must bring what was waited
// for to its end, and the exception goes on once that has happened.
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

// Some calls under way and the first error among them, in the order in which they are numbered. Thread-safe.
class Pending final {
 public:
  // `on_end` is called by whoever finishes the last call, with the first error, and holding no lock.
  explicit Pending(size_t calls, std::function<void(const absl::Status&)> on_end = nullptr)
      : calls_(calls), on_end_(std::move(on_end)) {}

  // What comes after the last one is ignored.
  void Finish(size_t call, absl::Status status, std::exception_ptr thrown = nullptr);
  // Whether all calls have ended within `timeout`.
  [[nodiscard]] bool AwaitEnd(absl::Duration timeout);
  // Throws what a call has thrown, once. REQUIRES: all have ended; the GIL.
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

// One call, on a thread of its own, which ends with it. What `call` refers to must be shared with it.
std::shared_ptr<Pending> StartCall(std::function<absl::Status()> call);

enum class Cancelled { kEnded, kStillUnderWay };

// Waits for `pending` and raises its error. Where a signal handler raises, calls `cancel`, gives `pending` a few seconds
// to end, tells `on_cancelled` whether it has, and throws what the handler raised. REQUIRES: the GIL, which is not held
// while waiting nor while `cancel` runs.
void Await(const std::shared_ptr<Pending>& pending, const std::function<void()>& cancel,
           const std::function<void(Cancelled)>& on_cancelled = nullptr);

}  // namespace slimps::python

#endif  // SLIMPS_PYTHON_EXTENSION_WAITING_H_
