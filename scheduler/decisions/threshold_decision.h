// SPDX-License-Identifier: Apache-2.0
// Turns the workers' threshold reports into the decision that holds for all of them, for pushes and
// for pulls. Where the job has a policy that adapts, its controller decides (PolicyControl). Owned
// by SchedulerState. Pure.
// Source: SlimGC section 3.3: averages over the workers, then BestCT
// (compress/policy/threshold_table.h).
//
//   ThresholdDecision decision(/*num_workers=*/2);
//   decision.Add(0, report);  decision.Add(1, report);
//   decision.decision()->from_round();
//
// A job that goes on measuring reports again, each time with a higher generation. A worker's newest
// report counts. When every worker has reported generation g or a later one, g is decided anew,
// with hysteresis against what is in force.
#ifndef SLIMPS_SCHEDULER_DECISIONS_THRESHOLD_DECISION_H_
#define SLIMPS_SCHEDULER_DECISIONS_THRESHOLD_DECISION_H_

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "compress/policy/threshold_choice.h"
#include "compress/policy/threshold_table.h"
#include "proto/slimps.pb.h"
#include "scheduler/decisions/policy_control.h"

namespace slimps {

// Thread-compatible.
class ThresholdDecision final {
 public:
  explicit ThresholdDecision(uint32_t num_workers) : num_workers_(num_workers) {}

  // Takes the report of `worker`. Ignores a report that is not newer than the worker's newest or
  // than the last decision. Generation kLastGeneration (measured_rounds.h) does what Leave does.
  // InvalidArgument: rows that no table can have, or another codec or policy than the others have
  // (names both workers).
  // Otherwise the errors of PolicyControl::Decide.
  [[nodiscard]] absl::Status Add(uint32_t worker, const wire::ThresholdReport& report);

  // Notes that `worker` will report nothing more. Decisions do not wait for it.
  void Leave(uint32_t worker);

  // Notes that `worker` reports again. Decisions wait for its next report.
  void Return(uint32_t worker) {
    left_.erase(worker);
    reports_.erase(worker);
  }

  // Returns the newest decision, or nullopt until every worker that has not left has reported.
  // Version g + 1 answers generation g. It is valid from the round after the newest that any worker
  // may have begun; in later generations, from kAnnounceRounds after that one (measured_rounds.h).
  // A worker that has reported waits for the answer before it begins a round that far on.
  const std::optional<wire::CodecMap>& decision() const { return decision_; }

  // Returns the workers whose reports the next decision lacks, if others have reported for it.
  std::vector<uint32_t> Unreported() const;

 private:
  struct Report {
    ThresholdTable push, pull;  // no codec: not measured
    uint64_t ready_round = 0;
    uint64_t generation = 0;
    // The thresholds that the worker says are in force, by direction. Empty if it says nothing.
    std::map<wire::Direction, std::optional<uint64_t>> in_force;
    std::optional<wire::PolicyReport> policy;
  };

  absl::Status CheckCodecs(uint32_t worker, const wire::ThresholdReport& report) const;
  // Returns the generation that can be decided, or nullopt if none can.
  std::optional<uint64_t> CompleteGeneration() const;
  absl::Status DecideIfComplete();
  // Decides `generation` by the workers' tables.
  void DecideThresholds(uint64_t generation, wire::CodecMap* map);
  // What was decided last, for this codec. "": nothing.
  struct Followed {
    std::string codec;
    FollowedThreshold threshold;
  };
  // Puts the rows of `average` and its codec into the map as those of `direction`, and returns the
  // threshold. If nothing was decided for its codec yet, it starts from the first report of
  // `generation` that says what is in force. If then nothing was measured raw, or nothing
  // compressed, it decides nothing: the map names no codec.
  std::optional<uint64_t> Decide(const ThresholdTable& average, wire::Direction direction,
                                 uint64_t generation, Followed* followed,
                                 wire::CodecMap* map) const;

  const uint32_t num_workers_;
  std::map<uint32_t, Report> reports_;  // newest of each worker; averaged in rank order
  std::set<uint32_t> left_;
  std::optional<uint64_t> decided_generation_;
  std::optional<wire::CodecMap> decision_;
  Followed push_, pull_;
  PolicyControl policy_;
};

}  // namespace slimps

#endif  // SLIMPS_SCHEDULER_DECISIONS_THRESHOLD_DECISION_H_
