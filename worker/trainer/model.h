// SPDX-License-Identifier: Apache-2.0
// Model: what the training loop knows of a model, namely parameters as plain memory, and gradients
// as backward produces them. Only networks.cc and torch_model.cc see the libtorch behind it.
//
//   SLIMPS_ASSIGN_OR_RETURN(auto model, MakeModel("lenet", data, /*seed=*/1));
//   auto loss = model->ForwardBackward(batch, [&](size_t index, auto gradient) { ... });
#ifndef SLIMPS_WORKER_TRAINER_MODEL_H_
#define SLIMPS_WORKER_TRAINER_MODEL_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "worker/exchange/parameter.h"
#include "worker/trainer/dataset.h"

namespace slimps {

struct Minibatch {
  size_t samples = 0;
  std::vector<float> values;    // samples * sample elements
  std::vector<int64_t> labels;  // samples * labels_per_sample
};

// Sums over the labels of one or more minibatches.
struct LossSums {
  double loss = 0;  // cross entropy, natural logarithm
  size_t correct = 0;
  size_t labels = 0;

  double MeanLoss() const { return labels == 0 ? 0 : loss / static_cast<double>(labels); }
  double Accuracy() const {
    return labels == 0 ? 0 : static_cast<double>(correct) / static_cast<double>(labels);
  }
  void Add(const LossSums& other) {
    loss += other.loss;
    correct += other.correct;
    labels += other.labels;
  }
};

// Receives the gradient of the mean loss by parameter `index`. The view is valid until the next
// ForwardBackward or Evaluate. Called on the thread that runs ForwardBackward.
using GradientReady = std::function<void(size_t index, std::span<const float> gradient)>;

// Owned by the training thread.
class Model {
 public:
  virtual ~Model() = default;

  // Returns the parameters in the order in which forward first uses them.
  virtual std::span<const Parameter> parameters() const = 0;

  // Computes the loss and all gradients. Calls `ready` once for every parameter that took part, as
  // soon as its gradient is final: the last layers' come first.
  // Internal: the framework failed.
  [[nodiscard]] virtual absl::StatusOr<LossSums> ForwardBackward(const Minibatch& batch,
                                                                 const GradientReady& ready) = 0;

  // Computes the loss in evaluation mode: forward only, with batch normalisation by its running
  // averages.
  // Internal: the framework failed.
  [[nodiscard]] virtual absl::StatusOr<LossSums> Evaluate(const Minibatch& batch) = 0;
};

// Makes the model `name`, one of networks.h. The same seed gives the same first weights.
// InvalidArgument: unknown name, or a data set that the model does not fit (the message says which
// shapes it takes).
// Internal: the framework failed.
[[nodiscard]] absl::StatusOr<std::unique_ptr<Model>> MakeModel(std::string_view name,
                                                               const Dataset& data, uint64_t seed);

// Sets the threads of the framework and of its BLAS, for the whole process. Called once, before the
// first model is made.
void SetComputeThreads(int threads);

// Copies the samples into one batch, as floats.
// REQUIRES: every index < split.count.
Minibatch GatherBatch(const Dataset& data, const Split& split, std::span<const uint32_t> samples);

}  // namespace slimps

#endif  // SLIMPS_WORKER_TRAINER_MODEL_H_
