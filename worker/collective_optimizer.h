// SPDX-License-Identifier: Apache-2.0
// Sets the optimizer so that no worker pushes before the servers know it: they would refuse an
// optimizer once a round has begun.
//
//   SLIMPS_RETURN_IF_ERROR(SetOptimizerTogether(spec, store.get()));   // every worker alike
#ifndef SLIMPS_WORKER_COLLECTIVE_OPTIMIZER_H_
#define SLIMPS_WORKER_COLLECTIVE_OPTIMIZER_H_

#include "absl/status/status.h"
#include "proto/slimps.pb.h"
#include "worker/kvstore.h"

namespace slimps {

// Calls KVStore::SetOptimizer and waits until all workers have done so. The caller's own barriers
// do not count.
// InvalidArgument: another worker sets another optimizer. The message has both.
// FailedPrecondition: another worker's call was refused.
// DeadlineExceeded: some workers have not called it.
[[nodiscard]] absl::Status SetOptimizerTogether(const wire::OptimizerSpec& spec, KVStore* store);

}  // namespace slimps

#endif  // SLIMPS_WORKER_COLLECTIVE_OPTIMIZER_H_
