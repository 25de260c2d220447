// SPDX-License-Identifier: Apache-2.0
// Collects a model's layers, one call per layer, in forward order. Part of models.cc.
//
//   ModelBuilder model("lenet", "LeCun et al. 1998", 4.0);
//   model.Convolution("conv1", {.in = 1, .out = 6, .kernel = 5, .size = 28, .bias = true});
//   model.Dense("fc", {.in = 84, .out = 10});
//   return model.Build();
//
// Thread-compatible.
#ifndef SLIMPS_TOOLS_BENCH_MODELS_MODEL_BUILDER_H_
#define SLIMPS_TOOLS_BENCH_MODELS_MODEL_BUILDER_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tools/bench/models/models.h"

namespace slimps {

class ModelBuilder final {
 public:
  ModelBuilder(std::string name, std::string source, double communication_to_compute);

  struct ConvolutionLayer {
    int64_t in = 0;
    int64_t out = 0;
    int64_t kernel = 1;  // square
    int64_t size = 0;    // output's width and height
    bool bias = false;
  };
  void Convolution(std::string_view name, const ConvolutionLayer& layer);

  // Adds a normalisation's scale and shift.
  void Normalisation(std::string_view name, int64_t channels);

  struct DenseLayer {
    int64_t in = 0;
    int64_t out = 0;
    int64_t positions = 1;    // it is applied to so many positions of one sample
    double extra = 0;         // multiply-adds without a weight, done just before this layer
    bool transposed = false;  // the weight is stored as in x out
  };
  void Dense(std::string_view name, const DenseLayer& layer);

  // Adds any other tensor.
  void Tensor(std::string name, std::vector<int64_t> shape, LayerKind layer, double multiply_adds);

  // Adds work to the newest tensor's layer that uses a weight listed elsewhere.
  void AddWork(double multiply_adds) { model_.tensors.back().multiply_adds += multiply_adds; }

  ModelShape Build() && { return std::move(model_); }

 private:
  ModelShape model_;
};

// One function per model.
ModelShape AlexNet();
ModelShape Vgg16();
ModelShape Vgg19();
ModelShape ResNet50();
ModelShape ResNet152();
ModelShape InceptionBn();
ModelShape LstmPtb();
ModelShape BertBase();
ModelShape Gpt2();

}  // namespace slimps

#endif  // SLIMPS_TOOLS_BENCH_MODELS_MODEL_BUILDER_H_
