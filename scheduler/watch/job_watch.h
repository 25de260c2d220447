// SPDX-License-Identifier: Apache-2.0
// Watches a job: takes what the scheduler knows and what the nodes report, and says what there is
// to see. Nothing in the job depends on it. Pure: no clock, no lock, no I/O; watch_service.h adds a
// lock.
//
//   JobWatch watch(options, now);
//   watch.TakeReport({wire::WORKER, 0}, bytes, now);         // whenever one comes
//   for (auto& line : watch.Observe(view, news, now)) LOG(WARNING) << line;  // each 250 ms
//   watch.Json(), watch.Samples()                            // for whoever looks
#ifndef SLIMPS_SCHEDULER_WATCH_JOB_WATCH_H_
#define SLIMPS_SCHEDULER_WATCH_JOB_WATCH_H_

#include <cstdint>
#include <deque>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/time/time.h"
#include "proto/base/clock.h"
#include "scheduler/watch/figures.h"
#include "scheduler/watch/job_json.h"
#include "scheduler/watch/job_view.h"
#include "scheduler/watch/node_reports.h"
#include "scheduler/watch/stall_log.h"
#include "watch/metrics_text.h"

namespace slimps {

// Thread-compatible.
class JobWatch final {
 public:
  struct Options {
    uint32_t num_workers = 1;
    uint32_t num_servers = 1;
    absl::Duration heartbeat_interval = absl::Seconds(1);
    absl::Duration stall_warning = absl::Seconds(10);  // 0: no line; stalls are shown
  };
  static constexpr size_t kMaxEvents = 200;

  JobWatch(const Options& options, SteadyTime began);

  // Takes what a node says of itself. Drops and counts what is no NodeReport.
  void TakeReport(const NodePlace& node, std::string_view bytes, SteadyTime now);

  // Takes what the scheduler knows now, and the lines that it has logged since the last call.
  // Returns the lines about waits that must be logged now.
  std::vector<std::string> Observe(JobView view, const std::vector<std::string>& news,
                                   SteadyTime now);

  // Returns the version of the decision that it knows. 0: none.
  uint64_t decision_version() const { return decision_ ? decision_->version() : 0; }

  // Returns whom the job waited for at the last Observe, for messages to people; "": for nobody.
  std::string Waits() const;

  // Returns what there was to see at the last Observe.
  nlohmann::json Json() const;
  std::vector<NodeSamples> Samples() const;

  uint64_t dropped_reports() const { return dropped_; }

 private:
  void AddEvent(std::string text, SteadyTime now);
  void TakeDecision(const wire::CodecMap& decision, SteadyTime now);
  // Drops the reports of processes whose place another one has taken since the last Observe.
  void ForgetFormer(const std::vector<NodeView>& nodes);

  const Options options_;
  const SteadyTime began_;
  SteadyTime now_;  // of the last Observe
  JobView view_;
  ReportMap reports_;
  RatesMap rates_;
  Figures figures_;
  History history_;
  StallLog stalls_;
  std::deque<JobEvent> events_;
  std::optional<wire::CodecMap> decision_;
  std::map<uint64_t, std::string> key_names_;  // of the tensors that worker 0 tells
  uint64_t dropped_ = 0;
};

}  // namespace slimps

#endif  // SLIMPS_SCHEDULER_WATCH_JOB_WATCH_H_
