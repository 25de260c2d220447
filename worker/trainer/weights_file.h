// SPDX-License-Identifier: Apache-2.0
// The file of a model's weights, for comparing runs bit for bit. Little-endian, no padding.
// Thread-safe.
//
//   8 bytes  "SLIMPSW1"
//   u32      number of parameters, in the model's order; then for each
//     u32      length of its name, and the name
//     u32      number of extents, then each as i64
//     fp32     the values, row-major
#ifndef SLIMPS_WORKER_TRAINER_WEIGHTS_FILE_H_
#define SLIMPS_WORKER_TRAINER_WEIGHTS_FILE_H_

#include <span>
#include <string>

#include "absl/status/status.h"
#include "worker/trainer/model.h"

namespace slimps {

// Returns the content of the file.
std::string BuildWeights(std::span<const Parameter> parameters);

// Writes the file.
[[nodiscard]] absl::Status SaveWeights(const std::string& path,
                                       std::span<const Parameter> parameters);

}  // namespace slimps

#endif  // SLIMPS_WORKER_TRAINER_WEIGHTS_FILE_H_
