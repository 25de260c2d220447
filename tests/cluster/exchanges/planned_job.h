// SPDX-License-Identifier: Apache-2.0
// Jobs that a test plans round by round, to compare what they end with.
#ifndef SLIMPS_TESTS_CLUSTER_EXCHANGES_PLANNED_JOB_H_
#define SLIMPS_TESTS_CLUSTER_EXCHANGES_PLANNED_JOB_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "tests/cluster/in_process_cluster.h"

namespace slimps {

// What a worker does in a round: pushes a gradient, pushes nothing, or is gone.
enum class Does { kPush, kNothing, kLeave };
using Plan = std::vector<std::vector<Does>>;      // by round, by worker
using Weights = std::vector<std::vector<float>>;  // by tensor

// Returns a plan of so many rounds in which both workers push.
inline Plan AllPush(size_t rounds) { return Plan(rounds, {Does::kPush, Does::kPush}); }

size_t ElementsOf(const std::vector<int64_t>& shape);

// What workers have after some rounds.
struct Checkpoint {
  Weights weights;
  std::map<uint32_t, std::string> residuals;  // by rank
};

// Tensors "w0", "w1", ... and the gradients that workers push. Servers step by plain SGD.
struct PlannedJob {
  ClusterOptions options;
  std::vector<std::vector<int64_t>> shapes;
  double learning_rate = 0;
  std::function<std::vector<float>(size_t tensor, size_t round, uint32_t worker)> gradient_of;

  Weights FirstWeights() const;
  // The tensors refer to `weights`.
  std::vector<InitTensor> Tensors(const Weights& weights) const;

  // Runs the plan with these options, and returns the weights that worker 0 holds at the end.
  Weights Run(const ClusterOptions& changed, const Plan& plan, bool stores_sums = false) const;
  Weights Run(const Plan& plan, bool stores_sums = false) const {
    return Run(options, plan, stores_sums);
  }

  // Trains rounds [from, to), from the first weights or from `start`.
  Checkpoint Train(size_t from, size_t to, const Checkpoint* start) const;
};

}  // namespace slimps

#endif  // SLIMPS_TESTS_CLUSTER_EXCHANGES_PLANNED_JOB_H_
