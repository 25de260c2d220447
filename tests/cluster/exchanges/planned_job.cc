// SPDX-License-Identifier: Apache-2.0
#include "tests/cluster/exchanges/planned_job.h"

#include <gtest/gtest.h>

#include "proto/base/mutex.h"
#include "tests/cluster/random_values.h"

namespace slimps {

size_t ElementsOf(const std::vector<int64_t>& shape) {
  size_t elements = 1;
  for (const int64_t extent : shape) elements *= static_cast<size_t>(extent);
  return elements;
}

Weights PlannedJob::FirstWeights() const {
  Weights weights;
  for (size_t t = 0; t < shapes.size(); ++t) {
    weights.push_back(Random(ElementsOf(shapes[t]), 100 + t));
  }
  return weights;
}

std::vector<InitTensor> PlannedJob::Tensors(const Weights& weights) const {
  std::vector<InitTensor> tensors;
  for (size_t t = 0; t < shapes.size(); ++t) {
    tensors.push_back({.key = "w" + std::to_string(t), .shape = shapes[t], .value = weights[t]});
  }
  return tensors;
}

Weights PlannedJob::Run(const ClusterOptions& changed, const Plan& plan, bool stores_sums) const {
  InProcessCluster cluster(changed);
  Weights end;
  cluster.RunWorkers([&](KVStore& store) {
    Weights weights = FirstWeights();
    const std::vector<InitTensor> tensors = Tensors(weights);
    ASSERT_STATUS_OK(store.Init(tensors));
    if (!stores_sums) ASSERT_STATUS_OK(store.SetOptimizer(Sgd(learning_rate)));
    ASSERT_STATUS_OK(store.Barrier());
    for (size_t round = 0; round < plan.size(); ++round) {
      const Does does = plan[round][store.rank()];
      if (does == Does::kLeave) {
        ASSERT_STATUS_OK(store.Leave());
        return;
      }
      for (size_t t = 0; t < tensors.size(); ++t) {
        if (does == Does::kNothing) {
          ASSERT_STATUS_OK(store.PushNothing(tensors[t].key));
        } else {
          ASSERT_STATUS_OK(store.Push(tensors[t].key, gradient_of(t, round, store.rank()), 0));
        }
      }
      // Every other round goes on without its weights.
      for (size_t t = 0; t < tensors.size() && round % 2 == 1; ++t) {
        ASSERT_STATUS_OK(store.Pull(tensors[t].key, weights[t], 0));
      }
    }
    for (size_t t = 0; t < tensors.size(); ++t) {
      ASSERT_STATUS_OK(store.Pull(tensors[t].key, weights[t], 0));
    }
    if (store.rank() == 0) end = weights;
  });
  return end;
}

Checkpoint PlannedJob::Train(size_t from, size_t to, const Checkpoint* start) const {
  InProcessCluster cluster(options);
  Mutex mutex;
  Checkpoint end;
  cluster.RunWorkers([&](KVStore& store) {
    Weights weights = start != nullptr ? start->weights : FirstWeights();
    const std::vector<InitTensor> tensors = Tensors(weights);
    ASSERT_STATUS_OK(store.Init(tensors));
    ASSERT_STATUS_OK(store.SetOptimizer(Sgd(learning_rate)));
    if (start != nullptr) {
      ASSERT_STATUS_OK(store.LoadResiduals(start->residuals.at(store.rank())));
    }
    ASSERT_STATUS_OK(store.Barrier());
    for (size_t round = from; round < to; ++round) {
      for (size_t t = 0; t < tensors.size(); ++t) {
        ASSERT_STATUS_OK(store.Push(tensors[t].key, gradient_of(t, round, store.rank()), 0));
      }
    }
    for (size_t t = 0; t < tensors.size(); ++t) {
      ASSERT_STATUS_OK(store.Pull(tensors[t].key, weights[t], 0));
    }
    const auto residuals = store.SaveResiduals();
    ASSERT_STATUS_OK(residuals.status());
    MutexLock lock(&mutex);
    end.residuals[store.rank()] = *residuals;
    end.weights = weights;
  });
  return end;
}

}  // namespace slimps
