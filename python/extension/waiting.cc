// SPDX-License-Identifier: Apache-2.0
#include "python/extension/waiting.h"

#include <pybind11/pybind11.h>

#include <utility>

#include "proto/base/thread.h"
#include "python/extension/status.h"

namespace slimps::python {

namespace py = pybind11;

namespace {

// While a call waits, signal handlers run at this interval.
constexpr absl::Duration kSignalInterval = absl::Milliseconds(50);
// How long a cancelled call may take to end. It only has to notify its own threads, so it ends far
// sooner unless something is badly wrong.
constexpr absl::Duration kCancelPatience = absl::Seconds(5);

}  // namespace

void Pending::Finish(size_t call, absl::Status status, std::exception_ptr thrown) {
  absl::Status result;
  {
    MutexLock lock(&mutex_);
    if (ended_ == calls_) return;
    if (thrown != nullptr) thrown_ = std::move(thrown);
    if (!status.ok() && (status_.ok() || call < first_failed_)) {
      first_failed_ = call;
      status_ = std::move(status);
    }
    if (++ended_ < calls_) return;
    changed_.NotifyAll();
    result = status_;
  }
  if (on_end_) on_end_(result);
}

bool Pending::AwaitEnd(absl::Duration timeout) {
  MutexLock lock(&mutex_);
  return changed_.Await(&mutex_, timeout, [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return ended_ == calls_;
  });
}

absl::Status Pending::TakeResult() {
  MutexLock lock(&mutex_);
  if (thrown_ != nullptr) std::rethrow_exception(std::exchange(thrown_, nullptr));
  return status_;
}

std::shared_ptr<Pending> StartCall(std::function<absl::Status()> call) {
  auto pending = std::make_shared<Pending>(1);
  // Detached, since a call that does not end within kCancelPatience must not stop Python. Otherwise
  // the waiter outwaits this thread: Finish is the thread's last act.
  Thread::StartDetached("call", [pending, call = std::move(call)]() mutable {
    absl::Status status;
    std::exception_ptr thrown;
    try {
      status = call();
    } catch (...) {
      thrown = std::current_exception();  // from an updater; the thread that waits raises it
    }
    call = nullptr;
    pending->Finish(0, std::move(status), std::move(thrown));
  });
  return pending;
}

void Await(const std::shared_ptr<Pending>& pending, const std::function<void()>& cancel,
           const std::function<void(Cancelled)>& on_cancelled) {
  for (;;) {
    bool ended = false;
    {
      py::gil_scoped_release no_gil;
      ended = pending->AwaitEnd(kSignalInterval);
    }
    if (ended) return RaiseIfError(pending->TakeResult());
    if (PyErr_CheckSignals() == 0) continue;
    py::error_already_set raised;
    {
      py::gil_scoped_release no_gil;
      cancel();
      ended = pending->AwaitEnd(kCancelPatience);
    }
    if (on_cancelled) on_cancelled(ended ? Cancelled::kEnded : Cancelled::kStillUnderWay);
    throw raised;
  }
}

}  // namespace slimps::python
