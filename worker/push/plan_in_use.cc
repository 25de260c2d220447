// SPDX-License-Identifier: Apache-2.0
#include "worker/push/plan_in_use.h"

#include <algorithm>
#include <optional>
#include <utility>

namespace slimps {

PlanInUse::PlanInUse(CompressionPlan* plan, PlanInUseOptions options)
    : plan_(plan), options_(std::move(options)) {}

void PlanInUse::SendReport(uint64_t round) const {
  std::optional<wire::ThresholdReport> report = plan_.load()->TakeReport(round);
  if (report) options_.on_report(*std::move(report));
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
    if (again) options_.on_report(*std::move(again));
  }
}

void PlanInUse::SendLastReports() const {
  for (wire::ThresholdReport& report : plan_.load()->TakeLastReports()) {
    options_.on_report(std::move(report));
  }
}

}  // namespace slimps
