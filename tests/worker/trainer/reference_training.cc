// SPDX-License-Identifier: Apache-2.0
#include "tests/worker/trainer/reference_training.h"

#include <torch/torch.h>

#include "worker/trainer/batch_plan.h"
#include "worker/trainer/networks.h"

namespace slimps {

std::vector<std::vector<float>> TrainInPlainLibtorch(const ReferenceOptions& options,
                                                     const Dataset& data) {
  torch::manual_seed(options.seed);
  const auto network = *MakeNetwork(options.model, data.sample_shape, data.classes);
  torch::optim::SGD optimizer(
      network->parameters(),
      torch::optim::SGDOptions(options.learning_rate).momentum(options.momentum));
  for (size_t done = 0, epoch = 0; done < options.steps; ++epoch) {
    const std::vector<uint32_t> order = ShuffledOrder(data.train.count, options.seed, epoch);
    for (size_t first = 0; first < order.size() && done < options.steps; first += options.batch) {
      const size_t count = std::min(options.batch, order.size() - first);
      std::vector<float> values;
      std::vector<int64_t> labels;
      for (size_t i = first; i < first + count; ++i) {
        data.AppendSample(data.train, order[i], &values);
        labels.push_back(data.train.labels[order[i]]);
      }
      std::vector<int64_t> shape = {static_cast<int64_t>(count)};
      shape.insert(shape.end(), data.sample_shape.begin(), data.sample_shape.end());
      optimizer.zero_grad();
      const torch::Tensor logits = network->forward(torch::from_blob(values.data(), shape));
      torch::nn::functional::cross_entropy(
          logits, torch::from_blob(labels.data(), {static_cast<int64_t>(count)}, torch::kInt64))
          .backward();
      optimizer.step();
      ++done;
    }
  }
  std::vector<std::vector<float>> weights;
  for (const torch::Tensor& tensor : network->parameters()) {
    const float* first = tensor.data_ptr<float>();
    weights.emplace_back(first, first + tensor.numel());
  }
  return weights;
}

}  // namespace slimps
