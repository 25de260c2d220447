// SPDX-License-Identifier: Apache-2.0
#include "scheduler/watch/watch_service.h"

#include <glog/logging.h>

#include "watch/metrics_text.h"

namespace slimps {
namespace {

constexpr absl::Duration kLooksOn = absl::Seconds(5);  // a page asks every second

}  // namespace

void WatchService::Observe(Observation observation) {
  std::vector<std::string> lines;
  {
    MutexLock lock(&mutex_);
    const SteadyTime now = clock_->Now();
    for (const auto& [place, bytes] : observation.reports) watch_.TakeReport(place, bytes, now);
    lines = watch_.Observe(std::move(observation.view), observation.news, now);
    ++observed_;
  }
  for (const std::string& line : lines) LOG(WARNING) << line;
}

std::string WatchService::Json() {
  MutexLock json_lock(&json_mutex_);
  // Making the JSON takes long, and the scheduler waits for `mutex_`.
  std::optional<JobWatch> seen;
  {
    MutexLock lock(&mutex_);
    asked_at_ = clock_->Now();
    if (json_of_ == observed_) return json_;
    seen.emplace(watch_);
    json_of_ = observed_;
  }
  json_ = seen->Json().dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  return json_;
}

std::string WatchService::Metrics() const {
  std::vector<NodeSamples> samples;
  {
    MutexLock lock(&mutex_);
    samples = watch_.Samples();
  }
  return MetricsText(samples);
}

bool WatchService::IsWatched() const {
  MutexLock lock(&mutex_);
  return clock_->Now() - asked_at_ < kLooksOn;
}

}  // namespace slimps
