// SPDX-License-Identifier: Apache-2.0
// Numbers of the optimizer that a training loop changes during training, for its own groups of
// parameters and schedules.
#ifndef SLIMPS_WORKER_TENSOR_HYPER_H_
#define SLIMPS_WORKER_TENSOR_HYPER_H_

namespace slimps {

// Replaces the optimizer's numbers, its learning-rate schedule included. REQUIRES: neither is
// negative, and both are finite in fp32.
struct Hyper {
  double learning_rate = 0;
  double weight_decay = 0;
};

}  // namespace slimps

#endif  // SLIMPS_WORKER_TENSOR_HYPER_H_
