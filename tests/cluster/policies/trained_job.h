// SPDX-License-Identifier: Apache-2.0
// Jobs under a policy: what they train, and what they leave behind.
#ifndef SLIMPS_TESTS_CLUSTER_POLICIES_TRAINED_JOB_H_
#define SLIMPS_TESTS_CLUSTER_POLICIES_TRAINED_JOB_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "tests/cluster/in_process_cluster.h"

namespace slimps {

struct Outcome {
  std::vector<std::vector<float>> weights;
  std::string states;
  std::map<uint32_t, std::string> residuals;  // by worker
  std::map<uint32_t, std::vector<wire::CodecMap>> decisions;
  std::vector<KeyCodec> codecs;  // of rank 0, as are the totals
  StoreTotals totals;
};

// Tensors "w0", "w1", ... of these shapes, initialised with Random(elements, 100 + number).
struct TrainedJob {
  ClusterOptions options;
  std::vector<std::vector<int64_t>> shapes;
  wire::OptimizerSpec optimizer;
  std::function<std::vector<float>(size_t tensor, int round, uint32_t worker)> gradient_of;

  // Trains rounds `from` to `to`, starting from `start` if it is not null. A worker without
  // residuals there begins with none.
  Outcome Train(int from, int to, const Outcome* start = nullptr) const;
};

}  // namespace slimps

#endif  // SLIMPS_TESTS_CLUSTER_POLICIES_TRAINED_JOB_H_
