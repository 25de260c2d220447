// SPDX-License-Identifier: Apache-2.0
// Prints a model's tensors and layers as JSON, for `tools/slimps plan`.
//
//   describe_model NAME    {"name": "resnet50", "ratio": 5.07, "tensors": [["conv1.weight", [64, 3,
//                          7, 7]], ...], "layers": [[1, 0.0096], ...]}
//
// "ratio" is fp32 communication / compute. A layer is its number of tensors and its share of the
// work, forward and backward alike.
//
// Exit status: 0 printed; 1 there is no such model; 2 wrong usage.
#include <cstdio>
#include <iostream>
#include <nlohmann/json.hpp>

#include "absl/time/time.h"
#include "tools/bench/cluster/layer_plan.h"
#include "tools/bench/models/models.h"

namespace slimps {
namespace {

int Describe(const char* name) {
  const absl::StatusOr<ModelShape> model = FindModel(name);
  if (!model.ok()) {
    std::fprintf(stderr, "%s\n", std::string(model.status().message()).c_str());
    return 1;
  }
  nlohmann::json tensors = nlohmann::json::array();
  for (const ModelTensor& tensor : model->tensors) tensors.push_back({tensor.name, tensor.shape});
  nlohmann::json layers = nlohmann::json::array();
  for (const Layer& layer : PlanLayers(*model, absl::Seconds(3))) {
    layers.push_back({layer.tensors, absl::ToDoubleSeconds(layer.forward)});
  }
  std::cout << nlohmann::json{{"name", model->name},
                              {"ratio", model->communication_to_compute},
                              {"tensors", std::move(tensors)},
                              {"layers", std::move(layers)}}
            << "\n";
  return 0;
}

}  // namespace
}  // namespace slimps

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: describe_model NAME\n");
    return 2;
  }
  return slimps::Describe(argv[1]);
}
