// SPDX-License-Identifier: Apache-2.0
// BackgroundCall: a call that may go on after its function has returned, from its begin to the
// moment when the caller takes its outcome. The object is shared by the caller and by whatever
// works for the call.
//
//   SLIMPS_RETURN_IF_ERROR(call->Begin());
//   store->PullAsync(key, out, priority, [call](const absl::Status& status) {
//     call->End(OutcomeOf("slimps_pull", status));                // any thread
//   });
//   return call->Return();      // the status if it has ended, otherwise SLIMPS_UNDER_WAY; then:
//   return call->Finish();      // waits for the end
//
// Thread-safe.
#ifndef SLIMPS_WORKER_CAPI_BACKGROUND_CALL_H_
#define SLIMPS_WORKER_CAPI_BACKGROUND_CALL_H_

#include <functional>
#include <stop_token>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "proto/base/mutex.h"
#include "worker/capi/c_api_outcome.h"

namespace slimps {

class BackgroundCall final {
 public:
  BackgroundCall() = default;  // no descriptor
  ~BackgroundCall();
  BackgroundCall(const BackgroundCall&) = delete;
  BackgroundCall& operator=(const BackgroundCall&) = delete;

  // Gives the call a descriptor, which is readable from the end of a call that was under way until
  // Finish.
  // ResourceExhausted: there is none.
  [[nodiscard]] absl::Status OpenDescriptor();
  int descriptor() const { return descriptor_; }

  // FailedPrecondition: a call is under way.
  [[nodiscard]] absl::Status CheckIdle() const;

  // Begins a call. End must follow.
  // FailedPrecondition: a call is under way.
  [[nodiscard]] absl::Status Begin();

  // Ends the call.
  void End(Outcome outcome) noexcept;

  // Returns from the function that began the call. Reports and takes the outcome if there is one.
  slimps_status Return() noexcept;

  // Waits for the end of a call that is under way. Reports and takes its outcome.
  // FailedPrecondition: nothing is under way.
  slimps_status Finish(const char* function) noexcept;

  // Returns a token that Cancel stops, until Keep. It replaces the one before.
  std::stop_token NewStop();
  void Cancel();

  // Runs `keep`, which hands over what the call has made, unless Cancel was called. It does not run
  // once Cancel has returned.
  // Cancelled: Cancel was called.
  [[nodiscard]] absl::Status Keep(const std::function<void()>& keep);

 private:
  enum class State { kIdle, kBegun, kUnderWay, kEnded };
  absl::Status CheckIdleLocked() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  slimps_status TakeOutcome() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  int descriptor_ = -1;  // an eventfd; constant once it is open
  mutable Mutex mutex_;
  CondVar ended_;
  State state_ ABSL_GUARDED_BY(mutex_) = State::kIdle;
  bool is_told_ ABSL_GUARDED_BY(mutex_) = false;  // the descriptor is readable
  Outcome outcome_ ABSL_GUARDED_BY(mutex_);
  std::stop_source stop_ ABSL_GUARDED_BY(mutex_){std::nostopstate};
};

}  // namespace slimps

#endif  // SLIMPS_WORKER_CAPI_BACKGROUND_CALL_H_
