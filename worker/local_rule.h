// What a push does to a tensor where a worker steps itself: in a local store, or in the backup model's local step.
//
//   SLIMPS_ASSIGN_OR_RETURN(std::shared_ptr<const LocalRule> rule, MakeLocalRule(spec));
//   rule->optimizer.Step(weights, gradient, hyper, state, weights);
#ifndef SLIMPS_WORKER_LOCAL_RULE_H_
#define SLIMPS_WORKER_LOCAL_RULE_H_

#include <memory>

#include "absl/status/statusor.h"
#include "backup_model/local_updater.h"
#include "proto/slimps.pb.h"
#include "worker/kvstore.h"

namespace slimps {

// Constant once it is in force.
struct LocalRule {
  Updater updater;  // empty: the optimizer
  wire::OptimizerSpec spec;
  LocalUpdater optimizer;
};

// The servers' optimizer of one worker, whose average is its sum. Schedules are the caller's. Pure; thread-safe, as the next.
LocalUpdaterOptions UpdaterOptionsOf(const wire::OptimizerSpec& spec);

// InvalidArgument: names the field of `spec` that makes no sense. With an updater, `spec` is the one of no optimizer.
[[nodiscard]] absl::StatusOr<std::shared_ptr<const LocalRule>> MakeLocalRule(
    const wire::OptimizerSpec& spec, Updater updater = nullptr);

}  // namespace slimps

#endif  // SLIMPS_WORKER_LOCAL_RULE_H_
