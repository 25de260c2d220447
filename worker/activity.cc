// SPDX-License-Identifier: Apache-2.0
#include "worker/activity.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "absl/strings/ascii.h"
#include "watch/metrics.h"

namespace slimps {
namespace {

constexpr size_t kMaxPosition = 200;

// Returns the call as people know it: "PushNothing" becomes "push_nothing".
std::string ShownName(std::string_view function) {
  if (function == "PushSum" || function == "PushLent") return "push";
  if (function == "PullTo" || function == "PullAsync" || function == "PullOnto") return "pull";
  if (function == "AllReduceSumFor") return "all_reduce_sum";
  if (function == "BroadcastBytes") return "broadcast";
  std::string name;
  for (const char letter : function) {
    if (absl::ascii_isupper(static_cast<unsigned char>(letter)) && !name.empty()) name += '_';
    name += absl::ascii_tolower(static_cast<unsigned char>(letter));
  }
  return name;
}

}  // namespace

Activity::Call::Call(Activity* activity, const char* function)
    : activity_(activity), function_(function) {
  if (activity_ != nullptr) activity_->Begin(this);
}

Activity::Call::~Call() {
  if (activity_ != nullptr) activity_->End(this);
}

void Activity::Begin(Call* call) {
  MutexLock lock(&mutex_);
  call->began_ = clock_->Now();
  Account(call->began_);
  call->older_ = newest_;
  newest_ = call;
}

void Activity::End(Call* call) {
  MutexLock lock(&mutex_);
  const SteadyTime now = clock_->Now();
  Account(now);
  Call** link = &newest_;
  while (*link != call) link = &(*link)->older_;
  *link = call->older_;
  returned_ = call->function_;
  returned_at_ = now;
}

void Activity::NotePosition(std::string where) {
  where.resize(std::min(where.size(), kMaxPosition));
  // A report is valid UTF-8, whatever the program passes.
  for (char& letter : where) {
    if (!absl::ascii_isprint(static_cast<unsigned char>(letter))) letter = '?';
  }
  MutexLock lock(&mutex_);
  where_ = std::move(where);
}

void Activity::SetTravels(bool travels) {
  MutexLock lock(&mutex_);
  Account(clock_->Now());
  travels_ = travels;
}

void Activity::Account(SteadyTime now) {
  if (travels_) {
    travelled_ += now - accounted_;
    if (newest_ == nullptr) overlapped_ += now - accounted_;
  }
  accounted_ = now;
}

void Activity::AddTo(watch::NodeReport* report) const {
  MutexLock lock(&mutex_);
  const SteadyTime now = clock_->Now();
  report->set_seconds(absl::ToDoubleSeconds(now - began_));
  watch::Activity& activity = *report->mutable_activity();
  activity.set_where(where_);
  if (newest_ != nullptr) {
    activity.set_call(ShownName(newest_->function_));
    activity.set_in_progress(true);
    activity.set_seconds(absl::ToDoubleSeconds(now - newest_->began_));
  } else if (*returned_ != '\0') {
    activity.set_call(ShownName(returned_));
    activity.set_seconds(absl::ToDoubleSeconds(now - returned_at_));
  }
  if (travelled_ > absl::ZeroDuration()) {
    AddSample(Metric::kTravelSeconds, {}, absl::ToDoubleSeconds(travelled_), report);
    AddSample(Metric::kOverlapSeconds, {}, absl::ToDoubleSeconds(overlapped_), report);
    AddSample(Metric::kStageSeconds, {"wait"}, absl::ToDoubleSeconds(travelled_ - overlapped_),
              report);
  }
}

}  // namespace slimps
