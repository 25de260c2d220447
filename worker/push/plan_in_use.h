// SPDX-License-Identifier: Apache-2.0
// PlanInUse: the compression plan that pushes follow, and its reports to the scheduler. While a
// decision that a push needs does not come, it reports again.
//
//   plan.SendReport(round);                                              // if one is due
//   SLIMPS_ASSIGN_OR_RETURN(const Codec* codec, plan.AwaitCodec(*tensor, round));
//
// Thread-safe.
#ifndef SLIMPS_WORKER_PUSH_PLAN_IN_USE_H_
#define SLIMPS_WORKER_PUSH_PLAN_IN_USE_H_

#include <atomic>
#include <cstdint>
#include <functional>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "compress/codec/codec.h"
#include "proto/base/clock.h"
#include "proto/slimps.pb.h"
#include "worker/plan/compression_plan.h"
#include "worker/push/level_probe.h"
#include "worker/tensor/key_table.h"

namespace slimps {

struct PlanInUseOptions {
  absl::Duration timeout;          // for a decision
  absl::Duration report_interval;  // shorter if the timeout is short
  std::function<void(wire::ThresholdReport)> on_report;
  const Clock* clock = MachineClock();
};

class PlanInUse final {
 public:
  PlanInUse(CompressionPlan* plan, PlanInUseOptions options);

  // Uses `plan` from now on. REQUIRES: it outlives this.
  void Use(CompressionPlan* plan) { plan_.store(plan); }
  CompressionPlan* operator->() const { return plan_.load(); }
  CompressionPlan* get() const { return plan_.load(); }

  // Sends the threshold's report that is due before a push of `round`, if one is.
  void SendReport(uint64_t round) const;

  // Does the same for a policy that adapts, before a push that was submitted then. `probe` has what
  // the policy wants to know, and `take_link` returns what is known of the link.
  // REQUIRES: the plan adapts, and the caller may use `probe`.
  // Errors: those of LevelProbe::Take.
  [[nodiscard]] absl::Status SendPolicyReport(uint64_t round, SteadyTime submitted,
                                              LevelProbe* probe,
                                              const std::function<LinkReport()>& take_link) const;

  // Returns the codec of a push. Waits for the decision if `round` needs one.
  // DeadlineExceeded: it did not come within the timeout.
  [[nodiscard]] absl::StatusOr<const Codec*> AwaitCodec(const TensorPlan& tensor,
                                                        uint64_t round) const;

  // Sends what the scheduler must know when no more pushes will come.
  void SendLastReports() const;

 private:
  std::atomic<CompressionPlan*> plan_;  // publishes the plan's contents to all threads
  const PlanInUseOptions options_;
};

}  // namespace slimps

#endif  // SLIMPS_WORKER_PUSH_PLAN_IN_USE_H_
