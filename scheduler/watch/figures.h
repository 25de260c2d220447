// SPDX-License-Identifier: Apache-2.0
// The figures of a whole job, made from those of its nodes, and their history. Pure.
#ifndef SLIMPS_SCHEDULER_WATCH_FIGURES_H_
#define SLIMPS_SCHEDULER_WATCH_FIGURES_H_

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>

#include "absl/time/time.h"
#include "proto/base/clock.h"
#include "scheduler/watch/job_view.h"
#include "scheduler/watch/node_rates.h"

namespace slimps {

// Everything is per second, over all workers, unless it says otherwise.
struct Figures {
  double rounds_per_s = 0;  // of the worker that is furthest
  double push_bytes_per_s = 0;
  double pull_bytes_per_s = 0;
  double raw_push_bytes_per_s = 0;  // what the pushed tensors have in fp32
  double raw_pull_bytes_per_s = 0;
  double uncompressed_pull_bytes_per_s = 0;  // of pull_bytes_per_s: with codec "none"
  std::optional<double> overlap;             // nullopt: nothing travelled
  std::optional<double> compression_gain;    // nullopt: nothing was compressed
  std::optional<double> compression_error;
  std::map<std::string, double> stage_s = {
      {"copy", 0}, {"encode", 0}, {"send", 0}, {"wait", 0}, {"decode", 0}};  // of all threads
  std::map<uint32_t, double> server_bytes_per_s;                             // by server, both ways
  std::map<uint32_t, double> server_busy;  // by server: seconds of summing and stepping
  std::map<uint32_t, double> waited_for;   // by worker: part of the time, most of any server
};

using RatesMap = std::map<NodePlace, NodeRates>;

Figures FiguresOf(const RatesMap& nodes, uint32_t num_workers, absl::Duration window,
                  SteadyTime now);

struct HistoryPoint {
  double t = 0;  // seconds since the job began
  double push_bytes_per_s = 0;
  double pull_bytes_per_s = 0;
  double rounds_per_s = 0;
  std::optional<double> overlap;
};

// One point for each of the newest 600 seconds. Thread-compatible.
class History final {
 public:
  static constexpr size_t kMaxPoints = 600;

  // Adds a point, unless the last one is less than a second old.
  void Add(absl::Duration age, const Figures& figures);

  const std::deque<HistoryPoint>& points() const { return points_; }

 private:
  std::deque<HistoryPoint> points_;
};

}  // namespace slimps

#endif  // SLIMPS_SCHEDULER_WATCH_FIGURES_H_
