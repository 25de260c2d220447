// What this worker's codecs keep of its gradients between pushes (residuals, momentum of their own), as the content of a
// file: how a worker that was saved goes on where it stood.
//
//   byte  0      "SLPSRESI"
//         8      version, uint32, 1
//         12     grad_scale, fp32: the unit of what follows is gradient * grad_scale
//         16     keys, uint32; each of them, in the order of their names:
//                  bytes of its typed name, uint32; the name; elements, uint64; elements of a partition, uint64
//                what StateStore::Serialize makes of the states (compress/codec/state_file.cc)
//         last 8 XXH3-64 of all bytes before
//
// Everything is little-endian. Pure; thread-safe.
#ifndef SLIMPS_WORKER_RESIDUALS_H_
#define SLIMPS_WORKER_RESIDUALS_H_

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "compress/codec/state_store.h"
#include "worker/key_table.h"

namespace slimps {

// REQUIRES: `tensors` have elements, and are all that `states` speaks of.
std::string BuildResiduals(const std::vector<const TensorPlan*>& tensors, float grad_scale,
                           const StateStore& states);
// Puts the states into `states`, cut as `tensors` are now; those that the content does not name begin at zero. DataLoss: cut
// short or damaged. InvalidArgument: no such content, or of another version or grad_scale, or of a key or size that is not
// in `tensors`; after an error `states` is of no use.
[[nodiscard]] absl::Status ParseResiduals(std::string_view content,
                                          const std::vector<const TensorPlan*>& tensors,
                                          float grad_scale, StateStore* states);

}  // namespace slimps

#endif  // SLIMPS_WORKER_RESIDUALS_H_
