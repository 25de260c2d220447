// SPDX-License-Identifier: Apache-2.0
#include "tools/bench/cluster/layer_plan.h"

#include <string_view>

namespace slimps {
namespace {

std::string_view LayerName(std::string_view tensor) { return tensor.substr(0, tensor.rfind('.')); }

}  // namespace

std::vector<Layer> PlanLayers(const ModelShape& model, absl::Duration compute) {
  double all = 0;
  for (const ModelTensor& tensor : model.tensors) all += tensor.multiply_adds;
  std::vector<Layer> layers;
  std::string_view name;
  for (size_t i = 0; i < model.tensors.size(); ++i) {
    const ModelTensor& tensor = model.tensors[i];
    if (layers.empty() || LayerName(tensor.name) != name) layers.push_back({.first = i});
    name = LayerName(tensor.name);
    Layer& layer = layers.back();
    ++layer.tensors;
    const absl::Duration share = compute * (all > 0 ? tensor.multiply_adds / all : 0.0);
    layer.forward += share / 3;
    layer.backward += share * 2 / 3;
  }
  return layers;
}

}  // namespace slimps
