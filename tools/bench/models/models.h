// SPDX-License-Identifier: Apache-2.0
// The gradient tensors of real models: shapes, amounts of work, and what the gradients are like, as
// a job pushes and pulls them.
//
//   SLIMPS_ASSIGN_OR_RETURN(ModelShape model, FindModel("resnet50"));
//
// Pure.
#ifndef SLIMPS_TOOLS_BENCH_MODELS_MODELS_H_
#define SLIMPS_TOOLS_BENCH_MODELS_MODELS_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "compress/codec/codec.h"
#include "tools/bench/models/gradient_statistics.h"

namespace slimps {

// One gradient tensor.
struct ModelTensor {
  std::string name;
  std::vector<int64_t> shape;
  LayerKind layer = LayerKind::kOther;
  // Multiply-adds of the layer's forward pass for one sample. The layer's weight has all of them;
  // its other tensors, such as the bias, have 0.
  double multiply_adds = 0;
  GradientStatistics gradient{};  // recorded from training

  size_t elements() const;
  // The tensor as a matrix: its first extent, and the product of the others.
  size_t rows() const;
  size_t cols() const;
};

struct ModelShape {
  std::string name;
  std::string source;                // where the shapes are published
  std::vector<ModelTensor> tensors;  // in forward order
  // fp32 communication time / computation time: from SlimGC's table 2, or 4.0 if the model is not
  // in it.
  double communication_to_compute = 4.0;

  size_t elements() const;
};

// Returns alexnet, vgg16, vgg19, resnet50, resnet152, inception_bn, lstm_ptb, bert_base, gpt2.
std::vector<std::string> ModelNames();

// NotFound: there is no such model; the message lists the names.
// Internal: the model's recording does not fit its tensors.
[[nodiscard]] absl::StatusOr<ModelShape> FindModel(std::string_view name);

}  // namespace slimps

#endif  // SLIMPS_TOOLS_BENCH_MODELS_MODELS_H_
