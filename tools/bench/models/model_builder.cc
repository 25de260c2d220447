// SPDX-License-Identifier: Apache-2.0
#include "tools/bench/models/model_builder.h"

#include <utility>

#include "absl/strings/str_cat.h"

namespace slimps {
namespace {

std::string Join(std::string_view layer, std::string_view tensor) {
  return absl::StrCat(std::string(layer), ".", std::string(tensor));
}

}  // namespace

ModelBuilder::ModelBuilder(std::string name, std::string source, double communication_to_compute) {
  model_.name = std::move(name);
  model_.source = std::move(source);
  model_.communication_to_compute = communication_to_compute;
}

void ModelBuilder::Tensor(std::string name, std::vector<int64_t> shape, LayerKind layer,
                          double multiply_adds) {
  model_.tensors.push_back({std::move(name), std::move(shape), layer, multiply_adds});
}

void ModelBuilder::Convolution(std::string_view name, const ConvolutionLayer& layer) {
  const auto weights = static_cast<double>(layer.in * layer.out * layer.kernel * layer.kernel);
  Tensor(Join(name, "weight"), {layer.out, layer.in, layer.kernel, layer.kernel},
         LayerKind::kConvolution, weights * static_cast<double>(layer.size * layer.size));
  if (layer.bias) Tensor(Join(name, "bias"), {layer.out}, LayerKind::kConvolution, 0);
}

void ModelBuilder::Normalisation(std::string_view name, int64_t channels) {
  Tensor(Join(name, "weight"), {channels}, LayerKind::kNormalisation, 0);
  Tensor(Join(name, "bias"), {channels}, LayerKind::kNormalisation, 0);
}

void ModelBuilder::Dense(std::string_view name, const DenseLayer& layer) {
  std::vector<int64_t> shape = {layer.out, layer.in};
  if (layer.transposed) std::swap(shape[0], shape[1]);
  Tensor(Join(name, "weight"), std::move(shape), LayerKind::kDense,
         static_cast<double>(layer.in * layer.out * layer.positions) + layer.extra);
  Tensor(Join(name, "bias"), {layer.out}, LayerKind::kDense, 0);
}

}  // namespace slimps
