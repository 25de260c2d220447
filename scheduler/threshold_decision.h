// From the workers' threshold reports to the decision that holds for all of them. Pure.
// Source: SlimGC section 3.3: the means of the workers' means, then BestCT (compress/policy/threshold_table.h).
#ifndef SLIMPS_SCHEDULER_THRESHOLD_DECISION_H_
#define SLIMPS_SCHEDULER_THRESHOLD_DECISION_H_

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "compress/policy/threshold_table.h"
#include "proto/slimps.pb.h"

namespace slimps {

// Thread-compatible.
class ThresholdDecision final {
 public:
  explicit ThresholdDecision(uint32_t num_workers) : num_workers_(num_workers) {}

  // Takes the report of `worker`; a repeat counts once. InvalidArgument: rows that no table can have, or another codec
  // than the others profiled (names both workers).
  [[nodiscard]] absl::Status Add(uint32_t worker, const wire::ThresholdReport& report);
  // `worker` will report nothing more: the decision does not wait for it.
  void Leave(uint32_t worker);

  // nullopt until every worker that is there has reported. Once made it stays: version 1, valid from the round after
  // the last that any worker may have begun.
  const std::optional<wire::CodecMap>& decision() const { return decision_; }

 private:
  struct Report {
    ThresholdTable table;
    uint64_t ready_round = 0;
  };
  void DecideIfComplete();

  const uint32_t num_workers_;
  std::map<uint32_t, Report> reports_;  // by worker: averaged in rank order
  std::set<uint32_t> left_;
  std::optional<wire::CodecMap> decision_;
};

}  // namespace slimps

#endif  // SLIMPS_SCHEDULER_THRESHOLD_DECISION_H_
