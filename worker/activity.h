// SPDX-License-Identifier: Apache-2.0
// Activity: what the training program does in its store, for those who watch the job: its newest
// call, if that is in progress, and where the program stands. It also measures how much of the time
// in which items travelled the program was in no call.
//
//   Activity activity(clock);
//   { const Activity::Call call(&activity, "Push"); ... }       // any thread
//   activity.NotePosition("train.py:12");
//   activity.AddTo(&report);
//
// Owned by the store. It calls nobody, so any lock may be held. Thread-safe.
#ifndef SLIMPS_WORKER_ACTIVITY_H_
#define SLIMPS_WORKER_ACTIVITY_H_

#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/time/time.h"
#include "proto/base/clock.h"
#include "proto/base/mutex.h"
#include "watch/node_report.pb.h"

namespace slimps {

class Activity final {
 public:
  // A call from its begin to its end. Allocates nothing.
  class Call final {
   public:
    // `function` is a method of KVStore, or what else has to be called so: "PullTo" is shown as
    // "pull". It lives for ever. `activity` null: the call is not noted.
    Call(Activity* activity, const char* function);
    ~Call();
    Call(const Call&) = delete;
    Call& operator=(const Call&) = delete;

   private:
    friend class Activity;
    Activity* const activity_;
    const char* const function_;
    SteadyTime began_;
    Call* older_ = nullptr;  // the newest call in progress that began before
  };

  // REQUIRES: `clock` outlives this.
  explicit Activity(const Clock* clock) : clock_(clock), began_(clock->Now()) {}

  // Notes where the program's main thread stands. Keeps the begin of a long text, in ASCII.
  void NotePosition(std::string where);

  // Notes if any item is on its way to a server or back.
  void SetTravels(bool travels);

  // Sets activity, but for its round, and seconds. Adds the samples of travelling. The program
  // waits while items travel and it is in a call.
  void AddTo(watch::NodeReport* report) const;

 private:
  void Begin(Call* call);
  void End(Call* call);
  // Counts the time since the last call of this.
  void Account(SteadyTime now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const Clock* const clock_;
  const SteadyTime began_;
  mutable Mutex mutex_;
  Call* newest_ ABSL_GUARDED_BY(mutex_) = nullptr;  // in progress
  const char* returned_ ABSL_GUARDED_BY(mutex_) = "";
  SteadyTime returned_at_ ABSL_GUARDED_BY(mutex_);
  std::string where_ ABSL_GUARDED_BY(mutex_);
  bool travels_ ABSL_GUARDED_BY(mutex_) = false;
  SteadyTime accounted_ ABSL_GUARDED_BY(mutex_);
  absl::Duration travelled_ ABSL_GUARDED_BY(mutex_);
  absl::Duration overlapped_ ABSL_GUARDED_BY(mutex_);  // of it, in no call
};

}  // namespace slimps

#endif  // SLIMPS_WORKER_ACTIVITY_H_
