// SPDX-License-Identifier: Apache-2.0
#include "worker/exchange/gradient_pusher.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "glog/logging.h"
#include "proto/base/awaited.h"
#include "proto/base/clock.h"
#include "proto/base/mutex.h"
#include "proto/base/status_copy.h"
#include "proto/base/status_macros.h"
#include "worker/activity.h"

namespace slimps {
namespace {

// Returns true if the values, times `scale`, and all sums of some of them are finite.
bool AreSumsFinite(std::span<const float> values, float scale) {
  float magnitudes = 0;
  for (const float value : values) magnitudes += std::abs(value * scale);
  return std::isfinite(magnitudes);
}

}  // namespace

class GradientPusher::Loans final {
 public:
  explicit Loans(size_t parameters) : newest_(parameters) {}

  void BeginRound() {
    MutexLock lock(&mutex_);
    std::ranges::fill(newest_, Loan());
  }
  // Returns the loan's number.
  uint64_t Add(size_t index) {
    MutexLock lock(&mutex_);
    ++open_;
    newest_[index] = {.number = ++loans_};
    return loans_;
  }
  // Ends a loan that was never made.
  void Drop() {
    MutexLock lock(&mutex_);
    if (--open_ == 0) none_.NotifyAll();
  }
  void End(size_t index, uint64_t loan, const absl::Status& pushed) {
    MutexLock lock(&mutex_);
    if (newest_[index].number == loan) newest_[index].is_over = true;
    // What is wrong with a gradient says more than that the store has failed, which is what the
    // others then come back with.
    if (absl::IsInvalidArgument(pushed) && !absl::IsInvalidArgument(status_)) status_ = pushed;
    status_.Update(pushed);
    if (--open_ == 0) none_.NotifyAll();
  }
  // Returns true if the parameter's gradient was lent in this round and came back.
  bool IsOver(size_t index) const {
    MutexLock lock(&mutex_);
    return newest_[index].is_over;
  }
  absl::Status AwaitNone(absl::Duration timeout) {
    MutexLock lock(&mutex_);
    const auto none = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return open_ == 0; };
    if (!none_.Await(&mutex_, timeout, none)) {
      return absl::DeadlineExceededError(absl::StrCat(
          open_, " gradients are still being read after ", absl::FormatDuration(timeout)));
    }
    return std::exchange(status_, absl::OkStatus());
  }

 private:
  struct Loan {
    uint64_t number = 0;  // 0: none in this round
    bool is_over = false;
  };

  mutable Mutex mutex_;
  CondVar none_;
  std::vector<Loan> newest_ ABSL_GUARDED_BY(mutex_);  // by parameter
  uint64_t loans_ ABSL_GUARDED_BY(mutex_) = 0;        // that were ever made
  size_t open_ ABSL_GUARDED_BY(mutex_) = 0;
  absl::Status status_ ABSL_GUARDED_BY(mutex_);
};

GradientPusher::GradientPusher(KVStore* store, std::span<const Parameter> parameters,
                               const PushOptions& options)
    : store_(store),
      options_(options),
      loans_(std::make_shared<Loans>(parameters.size())),
      rounds_are_counted_(store->type() != "dist_async"),
      contributed_(parameters.size()) {
  for (const Parameter& parameter : parameters) {
    keys_.emplace_back(parameter.name);
    elements_.push_back(parameter.values.size());
  }
}

void GradientPusher::BeginRound() {
  contributed_.assign(contributed_.size(), false);
  loans_->BeginRound();
  first_push_ = SteadyTime::InfiniteFuture();
  status_ = absl::OkStatus();
  held_back_.clear();
  measuring_ = store_->measuring();
}

bool GradientPusher::OnGradient(size_t index, std::span<const float> gradient, const Place& place,
                                std::shared_ptr<const void> owner) {
  HeldBack one{index, gradient, place, std::move(owner)};
  if (!status_.ok() || !measuring_) return Push(one);
  held_back_.push_back(std::move(one));
  return false;
}

absl::StatusOr<HostValues> GradientPusher::BringToHost(const HeldBack& one) const {
  absl::StatusOr<HostValues> on_host = HostValues::Of(store_->devices(), one.gradient, one.place);
  if (on_host.ok()) return on_host;
  return Prefixed(on_host.status(),
                  absl::StrCat("gradient of key ", keys_[one.index].typed_name()));
}

bool GradientPusher::IsRead(size_t index) const { return loans_->IsOver(index); }

bool GradientPusher::Push(const HeldBack& one) {
  if (!status_.ok()) return false;
  Begin();
  const size_t index = one.index;
  const std::span<const float> gradient = one.gradient;
  if (gradient.size() != elements_[index]) {
    status_ = absl::InvalidArgumentError(absl::StrCat("gradient of key ", keys_[index].typed_name(),
                                                      ": expected ", elements_[index],
                                                      " elements, got ", gradient.size()));
    return false;
  }
  if (!IsPushed(lends() ? Lend(one) : store_->Push(keys_[index], gradient, PriorityOf(index)))) {
    return false;
  }
  contributed_[index] = true;
  return true;
}

absl::Status GradientPusher::Lend(const HeldBack& one) {
  std::vector<LentGradient> lent = {
      {.values = one.gradient,
       .place = one.place,
       .returned = [loans = loans_, index = one.index, loan = loans_->Add(one.index),
                    owner = one.owner](const absl::Status& given_back) {
         loans->End(index, loan, given_back);
       }}};
  const absl::Status pushed =
      store_->PushLent(keys_[one.index], std::move(lent), PriorityOf(one.index));
  if (!pushed.ok()) loans_->Drop();
  return pushed;
}

absl::Status GradientPusher::AwaitLoans() { return loans_->AwaitNone(options_.timeout); }

void GradientPusher::OnRows(size_t index, std::span<const int64_t> rows,
                            std::span<const float> values, const Place& place) {
  if (!status_.ok()) return;
  Begin();
  const absl::StatusOr<HostValues> on_host = BringToHost({index, values, place});
  status_ = on_host.status();
  if (!status_.ok()) return;
  const std::span<const float> found = on_host->span();
  const absl::Status pushed = store_->PushRowSparse(keys_[index], rows, found, PriorityOf(index));
  if (absl::IsInvalidArgument(pushed) &&
      AreSumsFinite(found, store_->push_treatment().grad_scale)) {
    status_ = pushed;  // the rows make no sense, whatever their values are
    return;
  }
  contributed_[index] = IsPushed(pushed);
}

void GradientPusher::Begin() {
  if (first_push_ == SteadyTime::InfiniteFuture()) first_push_ = options_.clock->Now();
}

bool GradientPusher::IsPushed(const absl::Status& pushed) {
  if (pushed.ok()) return true;
  // The store refuses NaN and infinity with this code, before the round is consumed. EndRound then
  // contributes nothing for this parameter.
  if (absl::IsInvalidArgument(pushed) && options_.non_finite == NonFinite::kSkip) {
    LOG(WARNING) << "gradient skipped, it counts as zero in this round: " << pushed.message();
  } else {
    status_ = pushed;
  }
  return false;
}

absl::Status GradientPusher::SetClipNorm(double norm) {
  if (!(norm >= 0) || !std::isfinite(norm)) {
    return absl::InvalidArgumentError(
        absl::StrCat("clip_norm: expected a number over 0, or 0 for none, got ", norm));
  }
  for (const Key& key : keys_) SLIMPS_RETURN_IF_ERROR(store_->SetClipped(key, norm > 0));
  clip_norm_ = norm;
  return absl::OkStatus();
}

struct GradientPusher::Norm {
  ClippedNorm found;
  Awaited arrived;
};

absl::Status GradientPusher::AwaitNorm() {
  if (norm_ == nullptr) return absl::OkStatus();
  const Activity::Call noted(store_->activity(), "EndStep");
  const std::shared_ptr<Norm> norm = std::exchange(norm_, nullptr);
  SLIMPS_RETURN_IF_ERROR(Prefixed(norm->arrived.Await(), "norm of the mean gradient"));
  clipping_.newest = norm->found;
  if (norm->found.scale != 0) return absl::OkStatus();
  ++clipping_.skipped_steps;
  LOG(WARNING) << "the norm of the mean gradient is " << norm->found.norm
               << "; this step was skipped on all servers";
  return absl::OkStatus();
}

absl::Status GradientPusher::EndRound() {
  for (const HeldBack& one : held_back_) Push(one);
  held_back_.clear();
  SLIMPS_RETURN_IF_ERROR(status_);
  for (size_t i = 0; rounds_are_counted_ && i < keys_.size(); ++i) {
    if (!contributed_[i]) SLIMPS_RETURN_IF_ERROR(store_->PushNothing(keys_[i]));
  }
  // A small tensor's acknowledgement would queue behind the pulled weights of a large one, and its
  // time would include theirs. So nothing is pulled before the last push has been measured.
  if (measuring_) SLIMPS_RETURN_IF_ERROR(store_->Wait());
  SLIMPS_RETURN_IF_ERROR(AwaitNorm());
  if (clip_norm_ == 0) {
    clipping_.newest = {};
    return absl::OkStatus();
  }
  norm_ = std::make_shared<Norm>();
  store_->ClipRound(keys_, clip_norm_, &norm_->found,
                    [norm = norm_, done = norm_->arrived.Callback()](const absl::Status& clipped) {
                      done(clipped);  // into `norm`, which this keeps
                    });
  return absl::OkStatus();
}

}  // namespace slimps
