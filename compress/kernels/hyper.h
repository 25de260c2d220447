// SPDX-License-Identifier: Apache-2.0
// Numbers of the optimizer that a training loop changes during training, for its own groups of
// parameters and schedules.
#ifndef SLIMPS_COMPRESS_KERNELS_HYPER_H_
#define SLIMPS_COMPRESS_KERNELS_HYPER_H_

#include <optional>

namespace slimps {

// Replaces the optimizer's numbers, its learning-rate schedule included. REQUIRES: no number is
// negative, all are finite in fp32, and `momentum` is below 1.
struct Hyper {
  double learning_rate = 0;
  double weight_decay = 0;
  // SGD's momentum, or beta1 of Adam and AdamW. nullopt: the optimizer's own. An optimizer that was
  // set without momentum ignores it.
  std::optional<double> momentum = std::nullopt;
};

}  // namespace slimps

#endif  // SLIMPS_COMPRESS_KERNELS_HYPER_H_
