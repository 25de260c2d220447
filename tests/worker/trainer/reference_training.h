// SPDX-License-Identifier: Apache-2.0
// The same training in plain libtorch on one process: its own loop, autograd's own gradients,
// torch.optim's own step. Tests compare it with slimps's training over any number of workers and
// servers.
#ifndef SLIMPS_TESTS_WORKER_TRAINER_REFERENCE_TRAINING_H_
#define SLIMPS_TESTS_WORKER_TRAINER_REFERENCE_TRAINING_H_

#include <cstdint>
#include <string>
#include <vector>

#include "worker/trainer/dataset.h"

namespace slimps {

struct ReferenceOptions {
  std::string model;
  size_t steps = 1;
  size_t batch = 1;  // of all workers together
  uint64_t seed = 1;
  double learning_rate = 0.1;
  double momentum = 0;
};

// Returns the weights after `steps`, in the order of Model::parameters().
// REQUIRES: the model fits the data.
std::vector<std::vector<float>> TrainInPlainLibtorch(const ReferenceOptions& options,
                                                     const Dataset& data);

}  // namespace slimps

#endif  // SLIMPS_TESTS_WORKER_TRAINER_REFERENCE_TRAINING_H_
