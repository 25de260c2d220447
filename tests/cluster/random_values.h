// SPDX-License-Identifier: Apache-2.0
// Values and tensors that tests of whole jobs initialise and push.
#ifndef SLIMPS_TESTS_CLUSTER_RANDOM_VALUES_H_
#define SLIMPS_TESTS_CLUSTER_RANDOM_VALUES_H_

#include <cstddef>
#include <cstdint>
#include <random>
#include <vector>

#include "absl/strings/str_cat.h"
#include "proto/slimps.pb.h"
#include "worker/kvstore.h"

namespace slimps {

// Returns normally distributed values, the same for the same seed.
inline std::vector<float> Random(size_t elements, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> values(elements);
  for (float& value : values) value = normal(random);
  return values;
}

// Returns an SGD that steps by the mean over the workers.
inline wire::OptimizerSpec Sgd(double learning_rate, double momentum = 0) {
  wire::OptimizerSpec spec;
  spec.set_kind(wire::OptimizerSpec::SGD);
  spec.set_learning_rate(learning_rate);
  spec.set_momentum(momentum);
  spec.set_average(true);
  return spec;
}

// Tensors "w0", "w1", ... of these sizes, initialised from `weights`. Pulls may write to `weights`
// later.
struct RandomTensors {
  explicit RandomTensors(const std::vector<size_t>& sizes) {
    for (size_t k = 0; k < sizes.size(); ++k) weights.push_back(Random(sizes[k], 100 + k));
    for (size_t k = 0; k < sizes.size(); ++k) {
      tensors.push_back({.key = absl::StrCat("w", k),
                         .shape = {static_cast<int64_t>(sizes[k])},
                         .value = weights[k]});
    }
  }
  std::vector<std::vector<float>> weights;
  std::vector<InitTensor> tensors;
};

}  // namespace slimps

#endif  // SLIMPS_TESTS_CLUSTER_RANDOM_VALUES_H_
