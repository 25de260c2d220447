// SPDX-License-Identifier: Apache-2.0
// Residuals: what this worker's codecs keep of its gradients between pushes (residuals, momentum of
// their own), as the content of a file. A saved worker resumes from it.
//
//   byte  0      "SLPSRESI"
//         8      version, uint32: 1, or 2 with a policy
//         12     grad_scale, fp32: the unit of what follows is gradient * grad_scale
//         16     keys, uint32; then for each key, in the order of `tensors`:
//                  bytes of its typed name, uint32; the name; elements, uint64;
//                  elements of a partition, uint64
//                version 2: bytes of the policy's progress, uint32; wire::SavedPolicy
//                the states, as StateStore::Serialize writes them
//                (compress/codec/state/state_file.h)
//         last 8 XXH3-64 of all bytes before
//
// Everything is little-endian. Pure; thread-safe.
#ifndef SLIMPS_WORKER_SAVED_RESIDUALS_H_
#define SLIMPS_WORKER_SAVED_RESIDUALS_H_

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "compress/codec/state/state_store.h"
#include "worker/tensor/key_table.h"

namespace slimps {

// Returns the content of the file. `policy`: the progress of a policy that adapts; empty without
// one.
// REQUIRES: every tensor has elements, and `states` holds states of these tensors only.
std::string BuildResiduals(const std::vector<const TensorPlan*>& tensors, float grad_scale,
                           const StateStore& states, std::string_view policy = {});

// Reads the states into `states`, cut into partitions as `tensors` are now. States that the content
// does not name begin at zero. What a codec keeps under auxiliary keys (PhasedCodec::wants_memory)
// goes with that codec alone: where `tensors` has no such key, or one of another size, it is left
// out, and the residuals beside it are taken. Sets `policy` (null: it is skipped) to what
// BuildResiduals was given. After an error both are of no use.
// DataLoss: the content is cut short or damaged.
// InvalidArgument: the content is something else, or has another version or grad_scale, or names a
// key or size that is not in `tensors`.
[[nodiscard]] absl::Status ParseResiduals(std::string_view content,
                                          const std::vector<const TensorPlan*>& tensors,
                                          float grad_scale, StateStore* states,
                                          std::string* policy = nullptr);

}  // namespace slimps

#endif  // SLIMPS_WORKER_SAVED_RESIDUALS_H_
