// SPDX-License-Identifier: Apache-2.0
// Finds who waits for whom at one moment: open rounds, barriers and sums, declarations, decisions,
// nodes that are missing at the start, nodes that were not heard, servers that do not finish, calls
// that nothing else explains. What of it has lasted too long is StallLog's business. Pure.
#ifndef SLIMPS_SCHEDULER_WATCH_WAITS_H_
#define SLIMPS_SCHEDULER_WATCH_WAITS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "proto/base/clock.h"
#include "scheduler/watch/job_view.h"
#include "scheduler/watch/node_reports.h"

namespace slimps {

// A line is before + "12 s" + after, as "round 120 waits " "12 s" " for worker 1: s:w; ...".
struct Wait {
  std::string id;                     // the same as long as it is the same wait
  std::optional<absl::Duration> age;  // nullopt: since it was first found
  absl::Duration patience;            // how long it may last; infinite: nobody is told of it
  std::string before;
  std::string after;
  std::string over;               // "round 120 goes on"; "": other lines tell its end
  std::vector<NodePlace> blamed;  // whom it waits for
};

struct WaitOptions {
  absl::Duration patience = absl::Seconds(10);
  absl::Duration heartbeat_interval = absl::Seconds(1);
  uint64_t decision_version = 0;  // of the newest decision
};

// A node is late when it was not heard for this many heartbeat intervals. Then it is shown as slow.
inline constexpr double kLateIntervals = 2;

// A line says so after this many: a heartbeat that comes a little late is not worth one.
inline constexpr double kToldIntervals = 2.5;

// Returns the waits of a job that forms or runs, and none of another.
std::vector<Wait> FindWaits(const JobView& view, const ReportMap& reports, absl::Duration age,
                            SteadyTime now, const WaitOptions& options);

// Returns "12 s" or "2.5 s".
std::string Seconds(absl::Duration duration);

}  // namespace slimps

#endif  // SLIMPS_SCHEDULER_WATCH_WAITS_H_
