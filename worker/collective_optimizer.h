// Setting the optimizer so that nobody pushes before the servers know it: they would refuse it once a round has begun.
//
//   SLIMPS_RETURN_IF_ERROR(SetOptimizerTogether(spec, store.get()));   // every worker alike
#ifndef SLIMPS_WORKER_COLLECTIVE_OPTIMIZER_H_
#define SLIMPS_WORKER_COLLECTIVE_OPTIMIZER_H_

#include "absl/status/status.h"
#include "proto/slimps.pb.h"
#include "worker/kvstore.h"

namespace slimps {

// KVStore::SetOptimizer, and waits until all workers have come so far; the caller's own barriers do not count.
// FailedPrecondition: another worker was refused; DeadlineExceeded: some have not come.
[[nodiscard]] absl::Status SetOptimizerTogether(const wire::OptimizerSpec& spec, KVStore* store);

}  // namespace slimps

#endif  // SLIMPS_WORKER_COLLECTIVE_OPTIMIZER_H_
