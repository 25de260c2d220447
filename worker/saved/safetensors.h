// SPDX-License-Identifier: Apache-2.0
// The beginning of a file of weights that the safetensors library reads. The tensors' values follow
// it, fp32, little-endian, one after the other.
//
//   file = length of the JSON text, uint64 | JSON text, with spaces up to a multiple of 8 | values
//   JSON = {"__metadata__": {"rounds": "120"},
//           "conv1.weight": {"dtype": "F32", "shape": [20, 1, 5, 5], "data_offsets": [0, 2000]},
//           ...}
//
// Pure; thread-safe.
#ifndef SLIMPS_WORKER_SAVED_SAFETENSORS_H_
#define SLIMPS_WORKER_SAVED_SAFETENSORS_H_

#include <cstdint>
#include <string>
#include <vector>

namespace slimps {

struct SafetensorsEntry {
  std::string name;
  std::vector<int64_t> shape;
  uint64_t elements = 0;
};

// Returns the names of tensors in the file: without the type of their keys ("conv1.weight" for
// "s:conv1.weight", "5" for "i:5"), except where that is not unique, reserved, or looks like one
// with a type.
std::vector<std::string> SafetensorsNames(const std::vector<std::string>& typed_names);

// Returns all that comes before the values of these tensors, which follow in this order.
std::string SafetensorsHead(const std::vector<SafetensorsEntry>& tensors, uint64_t rounds);

}  // namespace slimps

#endif  // SLIMPS_WORKER_SAVED_SAFETENSORS_H_
