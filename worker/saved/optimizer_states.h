// SPDX-License-Identifier: Apache-2.0
// Optimizer states: what optimizers keep beside the weights (momentum, Adam's moments and step
// counts), as the content of a file. A saved job resumes from it. The file holds whole tensors, so
// that the states can be loaded with other servers and partitions.
//
//   byte  0      "SLPSOPTS"
//         8      version, uint32, 1
//         12     optimizer, uint32: wire::OptimizerSpec::Kind
//         16     state tensors of a key, uint32, 0 to 3
//         20     keys, uint32; then for each key, in the order of their names:
//                  bytes of its typed name, uint32; the name; elements, uint64;
//                  updates made so far, uint64; the state tensors one after another, fp32
//         last 8 XXH3-64 of all bytes before
//
// Everything is little-endian. Pure; thread-safe.
#ifndef SLIMPS_WORKER_SAVED_OPTIMIZER_STATES_H_
#define SLIMPS_WORKER_SAVED_OPTIMIZER_STATES_H_

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/slimps.pb.h"
#include "worker/tensor/key_table.h"

namespace slimps {

// SGD's momentum, or Adam's first and second moment. ONEBIT_ADAM with a frozen variance has also
// what its answers left out.
inline constexpr uint32_t kMaxStateTensors = 3;

struct KeyState {
  uint64_t elements = 0;
  uint64_t updates = 0;
  std::vector<std::vector<float>> tensors;  // each of `elements`
  friend bool operator==(const KeyState&, const KeyState&) = default;
};

struct OptimizerStates {
  wire::OptimizerSpec::Kind kind = wire::OptimizerSpec::NONE;
  uint32_t tensors = 0;
  std::map<std::string, KeyState> keys;  // by typed name
  friend bool operator==(const OptimizerStates&, const OptimizerStates&) = default;
};

// Returns the content of the file.
// REQUIRES: each key has `tensors` state tensors of `elements` elements.
std::string BuildOptimizerStates(const OptimizerStates& states);

// Parses the content of a file.
// DataLoss: the content is cut short, or its checksum does not match.
// InvalidArgument: the content is something else or of another version, or a field is out of range.
[[nodiscard]] absl::StatusOr<OptimizerStates> ParseOptimizerStates(std::string_view content);

// InvalidArgument: `states` does not hold exactly these tensors, by name and elements. The message
// names the key, or the two numbers of keys if they differ.
[[nodiscard]] absl::Status CheckKeys(const OptimizerStates& states,
                                     const std::vector<const TensorPlan*>& tensors);

// FailedPrecondition: `states` belongs to another optimizer than the store's.
[[nodiscard]] absl::Status CheckOptimizer(const OptimizerStates& states,
                                          wire::OptimizerSpec::Kind kind, uint32_t tensors);

// Returns text for messages: "ADAM with 2 state tensors".
std::string DescribeOptimizer(wire::OptimizerSpec::Kind kind, uint32_t tensors);

}  // namespace slimps

#endif  // SLIMPS_WORKER_SAVED_OPTIMIZER_STATES_H_
