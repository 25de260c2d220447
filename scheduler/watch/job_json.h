// SPDX-License-Identifier: Apache-2.0
// Writes what there is to see of a job as JSON, for the live page and `slimps status`. Every field
// is always there, and null where it is unknown. README.md shows the whole. Pure.
#ifndef SLIMPS_SCHEDULER_WATCH_JOB_JSON_H_
#define SLIMPS_SCHEDULER_WATCH_JOB_JSON_H_

#include <cstdint>
#include <deque>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "proto/base/clock.h"
#include "scheduler/watch/figures.h"
#include "scheduler/watch/job_view.h"
#include "scheduler/watch/node_reports.h"
#include "scheduler/watch/stall_log.h"

namespace slimps {

struct JobEvent {
  absl::Duration age;  // of the job when it happened
  std::string text;
};

// All that is shown. It refers to what its owner holds.
struct JobPicture {
  const JobView& view;
  const ReportMap& reports;
  const RatesMap& rates;
  const Figures& figures;
  const History& history;
  const std::deque<JobEvent>& events;
  const wire::CodecMap* decision = nullptr;  // nullptr: there is none
  const std::map<uint64_t, std::string>& key_names;
  std::vector<Stall> stalls;
  std::string advice;
  absl::Duration age;
  absl::Duration heartbeat_interval;
  SteadyTime now;
};

nlohmann::json JobJson(const JobPicture& picture);

// Returns the newest round that a worker has pushed a gradient of.
uint64_t NewestRound(const ReportMap& reports);

}  // namespace slimps

#endif  // SLIMPS_SCHEDULER_WATCH_JOB_JSON_H_
