// SPDX-License-Identifier: Apache-2.0
// A model without a framework: two tensors that are drawn to the mean of the batch. Its gradient
// depends on its weights, so a step on the wrong weights shows in every later step.
#ifndef SLIMPS_TESTS_WORKER_TRAINER_FAKE_MODEL_H_
#define SLIMPS_TESTS_WORKER_TRAINER_FAKE_MODEL_H_

#include <functional>
#include <limits>
#include <optional>
#include <vector>

#include "worker/trainer/model.h"

namespace slimps {

// Returns `count` samples of one byte each. All are different if count <= 256.
inline Dataset FakeData(size_t count) {
  Dataset data;
  data.name = "fake";
  data.sample_shape = {1, 1, 1};
  data.scale = {1.0f / 64};
  data.shift = {0.0f};
  data.classes = 2;
  for (Split* split : {&data.train, &data.test}) {
    split->count = count;
    for (size_t i = 0; i < count; ++i) {
      split->values.push_back(static_cast<uint8_t>(i));
      split->labels.push_back(static_cast<int64_t>(i % 2));
    }
  }
  return data;
}

// Owned by the training thread.
class FakeModel final : public Model {
 public:
  FakeModel() {
    parameters_ = {{.name = "a", .shape = {2, 2}, .layer = wire::DENSE, .values = a_},
                   {.name = "b", .shape = {2}, .layer = wire::DENSE, .values = b_}};
  }

  std::span<const Parameter> parameters() const override { return parameters_; }

  absl::StatusOr<LossSums> ForwardBackward(const Minibatch& batch,
                                           const GradientReady& ready) override {
    ++computed_;
    seen_.push_back(a_);
    if (before_compute) before_compute(computed_);
    float mean = 0;
    for (const float value : batch.values) mean += value;
    mean /= static_cast<float>(batch.samples);
    for (size_t i = 0; i < b_.size(); ++i) b_gradient_[i] = (b_[i] - mean) * 0.5f;
    for (size_t i = 0; i < a_.size(); ++i) a_gradient_[i] = a_[i] - mean * static_cast<float>(i);
    if (nan_in_step == computed_) a_gradient_[1] = std::numeric_limits<float>::quiet_NaN();
    if (!without_b) ready(1, b_gradient_);
    ready(0, a_gradient_);
    a_gradients_.push_back(a_gradient_);
    if (after_backward) after_backward(computed_);
    return LossSums{.loss = mean, .correct = 0, .labels = batch.samples};
  }

  absl::StatusOr<LossSums> Evaluate(const Minibatch& batch) override {
    if (before_evaluation) before_evaluation();
    return LossSums{.loss = 1.0 * static_cast<double>(batch.samples),
                    .correct = batch.samples / 2,
                    .labels = batch.samples};
  }

  // For tests.
  std::function<void(size_t step)> before_compute;  // steps count from 1
  std::function<void(size_t step)> after_backward;
  std::function<void()> before_evaluation;
  bool without_b = false;
  std::optional<size_t> nan_in_step;
  // The weights of "a" that each step computed on, and the gradients that it got from them.
  const std::vector<std::vector<float>>& seen() const { return seen_; }
  const std::vector<std::vector<float>>& a_gradients() const { return a_gradients_; }
  const std::vector<float>& a() const { return a_; }
  const std::vector<float>& b() const { return b_; }

 private:
  std::vector<float> a_ = {1, -1, 0.5f, 2};
  std::vector<float> b_ = {0.25f, -3};
  std::vector<float> a_gradient_ = std::vector<float>(4);
  std::vector<float> b_gradient_ = std::vector<float>(2);
  std::vector<Parameter> parameters_;
  std::vector<std::vector<float>> seen_, a_gradients_;
  size_t computed_ = 0;
};

}  // namespace slimps

#endif  // SLIMPS_TESTS_WORKER_TRAINER_FAKE_MODEL_H_
