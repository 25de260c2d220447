// SPDX-License-Identifier: Apache-2.0
// LocalRule: what a push does to a tensor where the worker takes the optimizer's step itself, in a
// local store or in the backup model's local step.
//
//   SLIMPS_ASSIGN_OR_RETURN(std::shared_ptr<const LocalRule> rule, MakeLocalRule(spec));
//   rule->optimizer.Step(weights, gradient, hyper, state, weights);
#ifndef SLIMPS_WORKER_LOCAL_LOCAL_RULE_H_
#define SLIMPS_WORKER_LOCAL_LOCAL_RULE_H_

#include <memory>

#include "absl/status/statusor.h"
#include "backup_model/local_updater.h"
#include "proto/slimps.pb.h"
#include "worker/kvstore.h"

namespace slimps {

// Immutable once a store or a backup model uses it, and then thread-safe.
struct LocalRule {
  Updater updater;  // empty: `optimizer` takes the step
  wire::OptimizerSpec spec;
  LocalUpdater optimizer;
};

// Returns the servers' optimizer as a lone worker runs it. `spec.average` has no effect: the
// average over one worker is its sum. The caller applies the learning-rate schedule. Pure;
// thread-safe.
LocalUpdaterOptions UpdaterOptionsOf(const wire::OptimizerSpec& spec);

// Makes the rule for an optimizer, or for `updater` where one is given. Pure; thread-safe.
// REQUIRES: with an updater, `spec` is the default, which names no optimizer.
// InvalidArgument: a field of `spec` makes no sense; the message names it.
[[nodiscard]] absl::StatusOr<std::shared_ptr<const LocalRule>> MakeLocalRule(
    const wire::OptimizerSpec& spec, Updater updater = nullptr);

}  // namespace slimps

#endif  // SLIMPS_WORKER_LOCAL_LOCAL_RULE_H_
