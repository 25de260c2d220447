// SPDX-License-Identifier: Apache-2.0
#include "worker/collective_optimizer.h"

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"

namespace slimps {

absl::Status SetOptimizerTogether(const wire::OptimizerSpec& spec, KVStore* store) {
  const absl::Status set = store->SetOptimizer(spec);
  // A worker that was refused comes here too, or the others would wait for it.
  const absl::StatusOr<std::vector<double>> refusals = store->AllReduceSumFor(
      absl::StrCat("setting the optimizer: ", spec.ShortDebugString()), {set.ok() ? 0.0 : 1.0});
  if (!set.ok()) return set;
  if (absl::IsDeadlineExceeded(refusals.status())) {
    return absl::DeadlineExceededError(
        absl::StrCat("setting the optimizer: every worker must do so, and some have not: ",
                     refusals.status().message()));
  }
  if (!refusals.ok()) return refusals.status();
  if (refusals->at(0) == 0) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat("setting the optimizer: refused at ",
                                                    refusals->at(0),
                                                    " other workers; their errors say why"));
}

}  // namespace slimps
