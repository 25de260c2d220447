// Whether an optimizer, or what takes the place of its numbers for one step, makes sense: checked by the servers that run it,
// by workers before they send it and by stores that step themselves.
#ifndef SLIMPS_PROTO_OPTIMIZER_CHECK_H_
#define SLIMPS_PROTO_OPTIMIZER_CHECK_H_

#include "absl/status/status.h"
#include "proto/slimps.pb.h"

namespace slimps {

// InvalidArgument: names the field, says what was expected and what came.
[[nodiscard]] absl::Status ValidateOptimizer(const wire::OptimizerSpec& spec);
[[nodiscard]] absl::Status ValidateHyper(const wire::Hyper& hyper);

}  // namespace slimps

#endif  // SLIMPS_PROTO_OPTIMIZER_CHECK_H_
