// SPDX-License-Identifier: Apache-2.0
// A small job whose gradients and weights lie in memory of a kind that the test chooses. The bits
// of its weights must not depend on the kind.
//
//   EXPECT_EQ(Train(cluster, [](uint32_t) { return std::make_unique<HostMemory>(); }),
//             Train(cluster, [](uint32_t) { return std::make_unique<OtherMemory>(); }));
#ifndef SLIMPS_TESTS_CLUSTER_GRADIENTS_GRADIENT_MEMORY_H_
#define SLIMPS_TESTS_CLUSTER_GRADIENTS_GRADIENT_MEMORY_H_

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/cluster/in_process_cluster.h"
#include "tests/cluster/random_values.h"

namespace slimps {

inline constexpr int kRounds = 4;
inline const std::vector<size_t> kSizes = {1, 64, 1000, 40000};

inline Key KeyOf(size_t i) { return Key(absl::StrCat("w", i)); }

// Memory of one worker's model, on the host or on a GPU.
class Memory {
 public:
  virtual ~Memory() = default;
  virtual void Push(KVStore& store, size_t i, const std::vector<float>& gradient) = 0;
  virtual std::vector<float> Pull(KVStore& store, size_t i) = 0;
};

class HostMemory : public Memory {
 public:
  void Push(KVStore& store, size_t i, const std::vector<float>& gradient) override {
    ASSERT_STATUS_OK(store.Push(KeyOf(i), gradient, -static_cast<int>(i)));
  }
  std::vector<float> Pull(KVStore& store, size_t i) override {
    std::vector<float> weights(kSizes[i]);
    EXPECT_TRUE(store.Pull(KeyOf(i), weights, 0).ok());
    return weights;
  }
};

using MakeMemory = std::function<std::unique_ptr<Memory>(uint32_t rank)>;

// Trains on two workers. Returns the weights that rank 0 pulled last.
inline std::vector<float> Train(ClusterOptions cluster, const MakeMemory& make_memory,
                                double momentum = 0.9) {
  cluster.store.partition_bytes = 64 << 10;
  std::vector<float> result;
  InProcessCluster(cluster).RunWorkers([&](KVStore& store) {
    const std::unique_ptr<Memory> memory = make_memory(store.rank());
    std::vector<InitTensor> tensors;
    std::vector<std::vector<float>> weights;
    for (const size_t size : kSizes) weights.push_back(Random(size, size));
    for (size_t i = 0; i < kSizes.size(); ++i) {
      tensors.push_back(
          {.key = KeyOf(i), .shape = {static_cast<int64_t>(kSizes[i])}, .value = weights[i]});
    }
    ASSERT_STATUS_OK(store.Init(tensors));
    ASSERT_STATUS_OK(store.SetOptimizer(Sgd(0.1, momentum)));
    ASSERT_STATUS_OK(store.Barrier());
    for (size_t round = 0; round < kRounds; ++round) {
      for (size_t i = kSizes.size(); i-- > 0;) {
        memory->Push(store, i, Random(kSizes[i], 100 * round + 10 * i + store.rank()));
      }
      for (size_t i = 0; i < kSizes.size(); ++i) weights[i] = memory->Pull(store, i);
    }
    if (store.rank() != 0) return;
    for (const auto& tensor : weights) result.insert(result.end(), tensor.begin(), tensor.end());
  });
  return result;
}

}  // namespace slimps

#endif  // SLIMPS_TESTS_CLUSTER_GRADIENTS_GRADIENT_MEMORY_H_
