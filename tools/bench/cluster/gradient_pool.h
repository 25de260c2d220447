// SPDX-License-Identifier: Apache-2.0
// A model's gradients without training it: each tensor has the statistics that were recorded from
// training. In every round a tensor's rows have moved on by some places, so that an element of a
// tensor with enough rows has another number in the next round.
//
//   const GradientPool pool(model, /*worker=*/rank);
//   store->Push(key, pool.Of(tensor, round), priority);
//
// Thread-safe: constant after construction.
#ifndef SLIMPS_TOOLS_BENCH_CLUSTER_GRADIENT_POOL_H_
#define SLIMPS_TOOLS_BENCH_CLUSTER_GRADIENT_POOL_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "proto/base/buffer.h"
#include "tools/bench/models/models.h"

namespace slimps {

class GradientPool final {
 public:
  GradientPool(const ModelShape& model, uint64_t worker);

  // Returns the worker's gradient. It is aligned to a cache line, as a framework's are.
  std::span<const float> Of(size_t tensor, uint64_t round) const;

 private:
  struct Tensor {
    size_t elements = 0;
    size_t step = 0;       // elements of the rows by which a round moves on; whole cache lines
    size_t places = 1;     // different ones
    AlignedBuffer values;  // the gradient, and its first rows once more
  };

  std::vector<Tensor> tensors_;
};

}  // namespace slimps

#endif  // SLIMPS_TOOLS_BENCH_CLUSTER_GRADIENT_POOL_H_
