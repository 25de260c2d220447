// SPDX-License-Identifier: Apache-2.0
// Parameter: a model's parameter as the store sees it. It is a name, which is the key, and plain
// memory, on the host or a GPU.
#ifndef SLIMPS_WORKER_EXCHANGE_PARAMETER_H_
#define SLIMPS_WORKER_EXCHANGE_PARAMETER_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "proto/slimps.pb.h"
#include "worker/device/place.h"

namespace slimps {

struct Parameter {
  std::string name;  // "conv1.weight"
  std::vector<int64_t> shape;
  wire::LayerKind layer = wire::OTHER;
  // The model's own memory: the next forward pass reads what is written here. Valid as long as the
  // model.
  std::span<float> values;
  // True: `values` is a second memory, which nobody reads during a step. Weights are written there
  // as soon as they are known, and the model exchanges it for the one that it computes on when the
  // step has ended (WeightExchange::SetMemory). On the host alone. With the backup model it is
  // loc_buf from the first on, so it stays as it is between steps.
  bool spare = false;
  // Where `values` lies. On a GPU, work that the stream is given after a call sees the weights that
  // the call has promised, and what the stream was given before sees the weights before.
  Place place = {};
};

// Returns the priority of a parameter's pushes and pulls. `index` is its place in the order in
// which forward uses the parameters: the next forward pass needs the first layers first.
inline int PriorityOf(size_t index) { return -static_cast<int>(index); }

}  // namespace slimps

#endif  // SLIMPS_WORKER_EXCHANGE_PARAMETER_H_
