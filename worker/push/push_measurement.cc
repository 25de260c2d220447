// SPDX-License-Identifier: Apache-2.0
#include "worker/push/push_measurement.h"

#include <algorithm>
#include <memory>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "proto/base/clock.h"
#include "proto/base/mutex.h"
#include "proto/base/status_macros.h"

namespace slimps {
namespace {

// Gathers the answers to one passage. Thread-safe.
class Answers final {
 public:
  Answers(size_t partitions, const Clock* clock) : clock_(clock), pending_(partitions) {}

  void Add(const Answer& answer) {
    const SteadyTime now = clock_->Now();
    MutexLock lock(&mutex_);
    // A round trip of zero means that the item was sent more than once: its time is unknown.
    known_ &= answer.round_trip > absl::ZeroDuration();
    first_byte_ = std::min(first_byte_, now - answer.round_trip);
    last_answer_ = std::max(last_answer_, now - answer.decode);
    decode_ += answer.decode;
    if (status_.ok()) status_ = answer.status;
    --pending_;
    answered_.NotifyAll();
  }

  // Returns false if some answers are missing after `timeout`.
  bool Await(absl::Duration timeout) {
    MutexLock lock(&mutex_);
    return answered_.Await(
        &mutex_, timeout, [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return pending_ == 0; });
  }

  absl::StatusOr<Passage> passage() {
    MutexLock lock(&mutex_);
    if (!status_.ok()) return status_;
    if (!known_) return Passage{.communication = absl::ZeroDuration(), .decode = decode_};
    return Passage{.communication = std::max(last_answer_ - first_byte_, absl::ZeroDuration()),
                   .decode = decode_};
  }

 private:
  const Clock* const clock_;
  Mutex mutex_;
  CondVar answered_;
  size_t pending_ ABSL_GUARDED_BY(mutex_);
  bool known_ ABSL_GUARDED_BY(mutex_) = true;
  SteadyTime first_byte_ ABSL_GUARDED_BY(mutex_) = SteadyTime::InfiniteFuture();
  SteadyTime last_answer_ ABSL_GUARDED_BY(mutex_) = SteadyTime::InfinitePast();
  absl::Duration decode_ ABSL_GUARDED_BY(mutex_);
  absl::Status status_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace

int PushMeasurement::Repeats(uint64_t tensor_bytes) {
  const uint64_t fitting = kRepeatedBytes / std::max<uint64_t>(tensor_bytes, 1);
  return static_cast<int>(std::clamp<uint64_t>(fitting, 1, kMaxRepeats));
}

absl::StatusOr<Passage> PushMeasurement::Send(const TensorPlan& tensor, int64_t priority,
                                              const std::vector<OutgoingItem>& items) const {
  Passage best{.communication = absl::InfiniteDuration(), .decode = absl::InfiniteDuration()};
  const int repeats = Repeats(tensor.bytes());
  for (int repeat = 0; repeat < repeats; ++repeat) {
    SLIMPS_ASSIGN_OR_RETURN(const Passage passage, SendOnce(tensor, priority, items));
    // A passage with a retry is no sample.
    if (passage.communication == absl::ZeroDuration()) continue;
    best.communication = std::min(best.communication, passage.communication);
    best.decode = std::min(best.decode, passage.decode);
  }
  return best.communication == absl::InfiniteDuration() ? Passage() : best;
}

absl::StatusOr<Passage> PushMeasurement::SendOnce(const TensorPlan& tensor, int64_t priority,
                                                  const std::vector<OutgoingItem>& items) const {
  auto answers = std::make_shared<Answers>(items.size(), clock_);
  for (size_t i = 0; i < items.size(); ++i) {
    std::vector<OutgoingItem> alone = {items[i]};
    alone[0].done = [answers](Answer answer) { answers->Add(answer); };
    dispatch_(tensor.partitions[i].server, std::move(alone), priority);
  }
  if (!answers->Await(timeout_)) {
    return absl::DeadlineExceededError(
        absl::StrCat("push of key ", tensor.key.typed_name(), " was never answered"));
  }
  return answers->passage();
}

}  // namespace slimps
