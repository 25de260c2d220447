// SPDX-License-Identifier: Apache-2.0
// Network: the networks as libtorch modules. They register layers in the order in which forward
// uses them. Model::parameters() and push priorities have that order.
//
//   logistic   flatten, linear
//   mlp        flatten, linear 512, ReLU, linear 512, ReLU, linear; on digits 40 bytes to 1 MB
//   lenet      conv 5x5 20, ReLU, pool, conv 5x5 50, ReLU, pool, linear 500, ReLU, linear
//              (LeCun et al. 1998, in Caffe's widths)
//   resnet20   3 stages of 3 blocks, 16/32/64 channels, shortcuts without parameters
//              (He et al. 2016, section 4.2)
//   lstm       embedding 64, LSTM 256, linear; back-propagation is truncated to the window, and
//              the state is zero at the window's start
//   char_transformer
//              embeddings of characters and places 128, 4 layers of 4 heads, linear; each layer is
//              layer norm, causal attention, layer norm, linear 512, GELU, linear, both parts with
//              a shortcut; first weights and order as in GPT-2 (Radford et al. 2019), no dropout
#ifndef SLIMPS_WORKER_TRAINER_NETWORKS_H_
#define SLIMPS_WORKER_TRAINER_NETWORKS_H_

#include <torch/torch.h>

#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace slimps {

// Thread-compatible.
class Network : public torch::nn::Module {
 public:
  // Takes {batch} + sample shape, fp32. Returns logits {batch, classes}; for text {batch * window,
  // classes}.
  virtual torch::Tensor forward(torch::Tensor input) = 0;
};

// Makes a network. Draws the first weights from torch's generator.
// REQUIRES: the caller has seeded that generator.
// InvalidArgument: unknown name, or a sample shape that the network cannot take.
absl::StatusOr<std::shared_ptr<Network>> MakeNetwork(std::string_view name,
                                                     const std::vector<int64_t>& sample_shape,
                                                     int64_t classes);

}  // namespace slimps

#endif  // SLIMPS_WORKER_TRAINER_NETWORKS_H_
