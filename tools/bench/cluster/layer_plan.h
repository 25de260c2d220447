// SPDX-License-Identifier: Apache-2.0
// Plans when a model's gradients become ready: its layers, and each layer's share of the time.
//
//   for (const Layer& layer : PlanLayers(model, absl::Milliseconds(160))) {
//     // model.tensors[layer.first] to [layer.first + layer.tensors - 1] are ready together
//   }
//
// Pure.
#ifndef SLIMPS_TOOLS_BENCH_CLUSTER_LAYER_PLAN_H_
#define SLIMPS_TOOLS_BENCH_CLUSTER_LAYER_PLAN_H_

#include <cstddef>
#include <vector>

#include "absl/time/time.h"
#include "tools/bench/models/models.h"

namespace slimps {

struct Layer {
  size_t first = 0;  // index in the model's tensors
  size_t tensors = 0;
  absl::Duration forward, backward;
};

// Returns the layers in forward order. Neighbouring tensors whose names are equal up to the last
// dot form one layer. A third of `compute` is the forward pass. A layer's share of both passes is
// its share of the multiply-adds.
std::vector<Layer> PlanLayers(const ModelShape& model, absl::Duration compute);

}  // namespace slimps

#endif  // SLIMPS_TOOLS_BENCH_CLUSTER_LAYER_PLAN_H_
