// SPDX-License-Identifier: Apache-2.0
#include "tests/cluster/policies/trained_job.h"

#include <gtest/gtest.h>

#include "proto/base/mutex.h"
#include "tests/cluster/random_values.h"

namespace slimps {

Outcome TrainedJob::Train(int from, int to, const Outcome* start) const {
  InProcessCluster cluster(options);
  Mutex mutex;
  Outcome end;
  cluster.RunWorkers([&](KVStore& store) {
    std::vector<std::vector<float>> weights;
    std::vector<InitTensor> tensors;
    for (size_t k = 0; k < shapes.size(); ++k) {
      size_t elements = 1;
      for (const int64_t extent : shapes[k]) elements *= static_cast<size_t>(extent);
      weights.push_back(start != nullptr ? start->weights[k] : Random(elements, 100 + k));
    }
    for (size_t k = 0; k < shapes.size(); ++k) {
      tensors.push_back({.key = "w" + std::to_string(k), .shape = shapes[k], .value = weights[k]});
    }
    ASSERT_STATUS_OK(store.Init(tensors));
    ASSERT_STATUS_OK(store.SetOptimizer(optimizer));
    ASSERT_STATUS_OK(store.Barrier());
    if (start != nullptr) {
      ASSERT_STATUS_OK(store.LoadOptimizerStates(start->states));
      const auto residuals = start->residuals.find(store.rank());
      if (residuals != start->residuals.end()) {
        ASSERT_STATUS_OK(store.LoadResiduals(residuals->second));
      }
    }
    for (int round = from; round <= to; ++round) {
      for (size_t k = 0; k < shapes.size(); ++k) {
        ASSERT_STATUS_OK(store.Push(tensors[k].key, gradient_of(k, round, store.rank()), 0));
      }
      for (size_t k = 0; k < shapes.size(); ++k) {
        ASSERT_STATUS_OK(store.Pull(tensors[k].key, weights[k], 0));
      }
    }
    const auto mine = store.SaveResiduals();
    ASSERT_STATUS_OK(mine.status());
    const auto states = store.SaveOptimizerStates();
    ASSERT_STATUS_OK(states.status());
    MutexLock lock(&mutex);
    end.weights = weights;
    end.states = *states;
    end.residuals[store.rank()] = *mine;
    end.decisions[store.rank()] = store.policy_decisions();
    if (store.rank() == 0) end.codecs = store.key_codecs();
    if (store.rank() == 0) end.totals = store.totals();
  });
  return end;
}

}  // namespace slimps
