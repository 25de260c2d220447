// When a model's gradients become ready: its layers, and what share of the time each of them computes.
//
//   for (const Layer& layer : PlanLayers(model, absl::Milliseconds(160))) {
//     ... model.tensors[layer.first] to [layer.first + layer.tensors - 1]: ready together
//   }
//
// Pure.
#ifndef SLIMPS_TOOLS_BENCH_CLUSTER_LAYER_PLAN_H_
#define SLIMPS_TOOLS_BENCH_CLUSTER_LAYER_PLAN_H_

#include <cstddef>
#include <vector>

#include "absl/time/time.h"
#include "tools/bench/models.h"

namespace slimps {

struct Layer {
  size_t first = 0;  // of the model's tensors
  size_t tensors = 0;
  absl::Duration forward, backward;
};

// In forward order. Neighbours whose names agree up to the last dot are one layer. A third of `compute` is the forward
// pass, and each layer has its multiply-adds' share of both passes.
std::vector<Layer> PlanLayers(const ModelShape& model, absl::Duration compute);

}  // namespace slimps

#endif  // SLIMPS_TOOLS_BENCH_CLUSTER_LAYER_PLAN_H_
