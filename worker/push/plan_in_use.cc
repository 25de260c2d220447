// SPDX-License-Identifier: Apache-2.0
#include "worker/push/plan_in_use.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "proto/base/simulation/mutant.h"
#include "proto/base/status_macros.h"

namespace slimps {

PlanInUse::PlanInUse(CompressionPlan* plan, PlanInUseOptions options)
    : plan_(plan), options_(std::move(options)) {}

void PlanInUse::SendReport(uint64_t round) const {
  std::optional<wire::ThresholdReport> report = plan_.load()->TakeReport(round);
  if (report) options_.on_report(*std::move(report));
}

absl::Status PlanInUse::SendPolicyReport(uint64_t round, SteadyTime submitted, LevelProbe* probe,
                                         const std::function<LinkReport()>& take_link) const {
  CompressionPlan* const plan = plan_.load();
  probe->BeginRound(round, submitted, plan);
  if (!plan->PolicyReportIsDue(round)) return absl::OkStatus();
  SLIMPS_ASSIGN_OR_RETURN(Report measured, probe->Take(plan));
  measured.link = take_link();
  options_.on_report(plan->TakePolicyReport(round, std::move(measured)));
  return absl::OkStatus();
}

absl::StatusOr<const Codec*> PlanInUse::AwaitCodec(const TensorPlan& tensor, uint64_t round) const {
  const SteadyTime deadline = options_.clock->Now() + options_.timeout;
  // Short enough that the plan's patience ends before the deadline does.
  const absl::Duration interval =
      std::min(options_.report_interval, options_.timeout / (CompressionPlan::kPatience + 1));
  for (;;) {
    absl::StatusOr<const Codec*> codec = plan_.load()->CodecFor(tensor, round, interval);
    if (!absl::IsDeadlineExceeded(codec.status()) || options_.clock->Now() >= deadline)
      return codec;
    // The report or the decision may have been lost. The scheduler answers a repeated report with
    // the decision.
    std::optional<wire::ThresholdReport> again = plan_.load()->UnansweredReport();
    if (again && !simulation::Is(Mutant::kReportOnce)) options_.on_report(*std::move(again));
  }
}

void PlanInUse::SendLastReports() const {
  for (wire::ThresholdReport& report : plan_.load()->TakeLastReports()) {
    options_.on_report(std::move(report));
  }
}

}  // namespace slimps
