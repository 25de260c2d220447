// SPDX-License-Identifier: Apache-2.0
// Helpers for tests of local stores.
#ifndef SLIMPS_TESTS_WORKER_LOCAL_LOCAL_STORE_FIXTURE_H_
#define SLIMPS_TESTS_WORKER_LOCAL_LOCAL_STORE_FIXTURE_H_

#include <cmath>
#include <cstdint>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "worker/kvstore.h"

namespace slimps {

inline constexpr float kInfinity = std::numeric_limits<float>::infinity();

using Values = std::vector<float>;
using DeviceArrays = std::vector<std::span<const float>>;

inline std::unique_ptr<KVStore> Make(const std::string& type, const KVStoreOptions& options = {}) {
  auto store = KVStore::Create(type, options);
  EXPECT_TRUE(store.ok()) << store.status();
  return *std::move(store);
}

inline absl::Status InitKey(KVStore& store, const Key& key, const Values& value,
                            wire::DType dtype = wire::FLOAT32) {
  return store.Init({{.key = key,
                      .shape = {static_cast<int64_t>(value.size())},
                      .value = value,
                      .dtype = dtype}});
}

inline Values PullOf(KVStore& store, const Key& key, size_t elements) {
  Values out(elements, NAN);
  const absl::Status pulled = store.Pull(key, out, 0);
  EXPECT_TRUE(pulled.ok()) << pulled;
  return out;
}

inline wire::OptimizerSpec Spec(wire::OptimizerSpec::Kind kind, double learning_rate = 0) {
  wire::OptimizerSpec spec;
  spec.set_kind(kind);
  spec.set_learning_rate(learning_rate);
  return spec;
}

inline void Add(const Key&, std::span<const float> gradient, std::span<float> weight) {
  for (size_t k = 0; k < weight.size(); ++k) weight[k] += gradient[k];
}

}  // namespace slimps

#endif  // SLIMPS_TESTS_WORKER_LOCAL_LOCAL_STORE_FIXTURE_H_
