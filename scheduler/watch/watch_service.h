// SPDX-License-Identifier: Apache-2.0
// A JobWatch behind a lock: the scheduler's thread feeds it, and threads of HTTP servers read it.
//
//   WatchService watch(options, &clock);
//   watch.Observe(service.Observe(watch.decision_version()));   // about twice a second
//   server.Get("/job.json", [&] { return watch.Json(); });
#ifndef SLIMPS_SCHEDULER_WATCH_WATCH_SERVICE_H_
#define SLIMPS_SCHEDULER_WATCH_WATCH_SERVICE_H_

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "proto/base/clock.h"
#include "proto/base/mutex.h"
#include "scheduler/watch/job_view.h"
#include "scheduler/watch/job_watch.h"

namespace slimps {

// What the scheduler hands over at once.
struct Observation {
  JobView view;
  std::vector<std::string> news;                           // lines that were logged
  std::vector<std::pair<NodePlace, std::string>> reports;  // NodeReports as they came
};

// Thread-safe.
class WatchService final {
 public:
  // REQUIRES: `clock` outlives the service.
  WatchService(const JobWatch::Options& options, const Clock* clock)
      : clock_(clock), watch_(options, clock->Now()) {}

  // Takes what there is to see now, and logs which waits last too long.
  void Observe(Observation observation);

  uint64_t decision_version() const {
    MutexLock lock(&mutex_);
    return watch_.decision_version();
  }

  std::string Waits() const {
    MutexLock lock(&mutex_);
    return watch_.Waits();
  }

  // Returns the state of the job as JSON on one line. It is made once for each Observe.
  std::string Json();

  // Returns the metrics of all nodes as Prometheus wants them.
  std::string Metrics() const;

  // True if somebody has asked for Json lately, so that nodes should tell details.
  bool IsWatched() const;

 private:
  const Clock* const clock_;
  Mutex json_mutex_;  // taken before `mutex_`
  std::string json_ ABSL_GUARDED_BY(json_mutex_);
  std::optional<uint64_t> json_of_ ABSL_GUARDED_BY(json_mutex_);  // the `observed_` that it shows
  mutable Mutex mutex_;
  JobWatch watch_ ABSL_GUARDED_BY(mutex_);
  uint64_t observed_ ABSL_GUARDED_BY(mutex_) = 0;  // calls of Observe
  SteadyTime asked_at_ ABSL_GUARDED_BY(mutex_) = SteadyTime::InfinitePast();
};

}  // namespace slimps

#endif  // SLIMPS_SCHEDULER_WATCH_WATCH_SERVICE_H_
