// SPDX-License-Identifier: Apache-2.0
// Checks that an optimizer, or the numbers that replace its own for one step (Hyper), make sense.
// Servers check those that they run, workers check before they send, and stores that step
// themselves check too. Pure. All functions are thread-safe.
//
//   SLIMPS_RETURN_IF_ERROR(ValidateOptimizer(request.set_optimizer().spec()));
#ifndef SLIMPS_PROTO_OPTIMIZER_CHECK_H_
#define SLIMPS_PROTO_OPTIMIZER_CHECK_H_

#include "absl/status/status.h"
#include "proto/slimps.pb.h"

namespace slimps {

// InvalidArgument: a field is out of range; the message names it, what was expected and what came.
[[nodiscard]] absl::Status ValidateOptimizer(const wire::OptimizerSpec& spec);
[[nodiscard]] absl::Status ValidateHyper(const wire::Hyper& hyper);

}  // namespace slimps

#endif  // SLIMPS_PROTO_OPTIMIZER_CHECK_H_
