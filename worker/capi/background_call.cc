// SPDX-License-Identifier: Apache-2.0
#include "worker/capi/background_call.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "worker/capi/c_api_calls.h"

namespace slimps {

BackgroundCall::~BackgroundCall() {
  if (descriptor_ >= 0) close(descriptor_);
}

absl::Status BackgroundCall::OpenDescriptor() {
  descriptor_ = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (descriptor_ >= 0) return absl::OkStatus();
  return absl::ResourceExhaustedError(
      absl::StrCat("no file descriptor for a call: ", std::strerror(errno)));
}

absl::Status BackgroundCall::CheckIdleLocked() const {
  if (state_ == State::kIdle) return absl::OkStatus();
  return absl::FailedPreconditionError("the call is under way; finish it by slimps_call_finish");
}

absl::Status BackgroundCall::CheckIdle() const {
  MutexLock lock(&mutex_);
  return CheckIdleLocked();
}

absl::Status BackgroundCall::Begin() {
  MutexLock lock(&mutex_);
  absl::Status idle = CheckIdleLocked();
  if (idle.ok()) state_ = State::kBegun;
  return idle;
}

void BackgroundCall::End(Outcome outcome) noexcept {
  MutexLock lock(&mutex_);
  outcome_ = std::move(outcome);
  if (state_ == State::kUnderWay && descriptor_ >= 0) {
    is_told_ = eventfd_write(descriptor_, 1) == 0;  // cannot fail: the counter is 0
  }
  state_ = State::kEnded;
  ended_.NotifyAll();
}

slimps_status BackgroundCall::TakeOutcome() {
  if (std::exchange(is_told_, false)) {
    eventfd_t told = 0;
    (void)eventfd_read(descriptor_, &told);  // cannot fail: the counter is 1
  }
  state_ = State::kIdle;
  return Report(std::exchange(outcome_, {}));
}

slimps_status BackgroundCall::Return() noexcept {
  MutexLock lock(&mutex_);
  if (state_ == State::kEnded) return TakeOutcome();
  state_ = State::kUnderWay;
  return SLIMPS_UNDER_WAY;
}

slimps_status BackgroundCall::Finish(const char* function) noexcept {
  MutexLock lock(&mutex_);
  if (state_ == State::kIdle) {
    return Guarded(function, [] {
      return absl::FailedPreconditionError("expected a call under way, got none");
    });
  }
  while (state_ != State::kEnded) ended_.Wait(&mutex_);
  return TakeOutcome();
}

std::stop_token BackgroundCall::NewStop() {
  MutexLock lock(&mutex_);
  stop_ = std::stop_source();
  return stop_.get_token();
}

void BackgroundCall::Cancel() {
  std::stop_source stop(std::nostopstate);
  {
    MutexLock lock(&mutex_);
    stop_.swap(stop);
  }
  stop.request_stop();  // runs what waits for it, so not under the lock
}

absl::Status BackgroundCall::Keep(const std::function<void()>& keep) {
  MutexLock lock(&mutex_);
  if (!stop_.stop_possible()) return absl::CancelledError("the call was cancelled");
  stop_ = std::stop_source(std::nostopstate);
  keep();
  return absl::OkStatus();
}

}  // namespace slimps
