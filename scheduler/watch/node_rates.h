// SPDX-License-Identifier: Apache-2.0
// Turns the counters in one node's reports into changes per second. They are measured on the node's
// own clock, so a report that comes late changes nothing. Pure: the caller brings the time.
//
//   rates.Add(report, now);
//   rates.PerSecond(Metric::kPayloadBytes, {"push"}, absl::Seconds(10), now);
#ifndef SLIMPS_SCHEDULER_WATCH_NODE_RATES_H_
#define SLIMPS_SCHEDULER_WATCH_NODE_RATES_H_

#include <cstddef>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "proto/base/clock.h"
#include "watch/metrics.h"
#include "watch/node_report.pb.h"

namespace slimps {

// Thread-compatible.
class NodeRates final {
 public:
  // Reports older than this are forgotten.
  static constexpr absl::Duration kKept = absl::Seconds(10);
  // A node that has not reported for so long stands still.
  static constexpr absl::Duration kStale = absl::Seconds(5);

  // Notes a report. One whose clock is behind the last one's comes from a new process.
  void Add(const watch::NodeReport& report, SteadyTime now);

  // Returns how much the samples whose labels begin with `labels` grow per second, over the newest
  // `window` and at least over the newest two reports. 0: there are no two reports, or the node
  // stands still.
  double PerSecond(Metric metric, const std::vector<std::string>& labels, absl::Duration window,
                   SteadyTime now) const;

  // The same for each value of the metric's first label.
  std::map<std::string, double> PerSecondByLabel(Metric metric, absl::Duration window,
                                                 SteadyTime now) const;

  // Returns how many rounds a worker begins per second. Counts from its first report with a round:
  // one that comes back goes from 0 to the job's round at once.
  double RoundsPerSecond(absl::Duration window, SteadyTime now) const;

  // Returns the newest value of a metric without labels, or nullopt if the node has not told it.
  std::optional<double> Newest(Metric metric) const;

 private:
  struct Point {
    SteadyTime at;
    watch::NodeReport report;  // its samples and seconds
  };
  static constexpr size_t kMaxPoints = 16;

  // Returns the index of the point from which changes over `window` count; nullopt: there is none.
  std::optional<size_t> Since(absl::Duration window, SteadyTime now) const;
  // Returns the change per second from a point to the newest one.
  double ChangeSince(size_t point, Metric metric, const std::vector<std::string>& labels) const;

  std::deque<Point> points_;
};

}  // namespace slimps

#endif  // SLIMPS_SCHEDULER_WATCH_NODE_RATES_H_
