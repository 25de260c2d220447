// SPDX-License-Identifier: Apache-2.0
// Local stores under random sequences of calls and under many threads.
#include <map>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/worker/local/local_store_fixture.h"
#include "worker/local/local_store.h"

namespace slimps {
namespace {

using ::testing::ElementsAre;

// Compares random sequences of calls with a plain model.
TEST(LocalStore, RandomSequencesEqualAPlainModel) {
  for (uint32_t seed = 0; seed < 20; ++seed) {
    std::mt19937 random(seed);
    const auto below = [&](size_t bound) { return random() % bound; };
    const auto store = Make(seed % 2 == 0 ? "local" : "device");
    std::map<int64_t, Values> model;
    enum class Rule { kReplace, kAdd, kSgd } rule = Rule::kReplace;
    for (int step = 0; step < 300; ++step) {
      const int64_t key = static_cast<int64_t>(below(6));
      const size_t elements = 1 + static_cast<size_t>(key) * 977;  // several blocks
      Values values(elements);
      for (float& value : values) value = static_cast<float>(below(64)) - 32;
      const auto known = model.find(key);
      switch (below(6)) {
        case 0:
          EXPECT_EQ(InitKey(*store, key, values).ok(), known == model.end());
          model.try_emplace(key, values);
          break;
        case 1:
          if (below(4) != 0) break;
          rule = static_cast<Rule>(below(3));
          ASSERT_TRUE((rule == Rule::kSgd ? store->SetOptimizer(Spec(wire::OptimizerSpec::SGD, 0.5))
                       : rule == Rule::kAdd ? store->SetUpdater(Add)
                                            : store->SetUpdater(nullptr))
                          .ok());
          break;
        case 2:
        case 3: {
          const size_t devices = 1 + below(3);
          const std::vector<Values> gradients(devices, values);
          const bool pushed =
              store->PushSum(key, DeviceArrays(gradients.begin(), gradients.end()), 0).ok();
          ASSERT_EQ(pushed, known != model.end());
          for (size_t k = 0; pushed && k < elements; ++k) {
            const float sum = values[k] * static_cast<float>(devices);
            float& weight = known->second[k];
            weight = rule == Rule::kReplace ? sum
                     : rule == Rule::kAdd   ? weight + sum
                                            : weight - 0.5f * sum;
          }
          break;
        }
        default:
          if (known == model.end()) {
            EXPECT_EQ(store->Pull(key, values, 0).code(), absl::StatusCode::kNotFound);
          } else {
            ASSERT_EQ(PullOf(*store, key, elements), known->second) << "seed " << seed;
          }
      }
    }
  }
}

TEST(LocalStore, ManyThreadsLoseNoPush) {
  for (const char* type : {"local", "device"}) {
    KVStoreOptions options;
    if (std::string(type) == "device") options.compression = "2bit:threshold=1";
    const auto store = Make(type, options);
    constexpr int kThreads = 4, kPushes = 200;
    ASSERT_TRUE(InitKey(*store, "shared", {0}).ok());
    ASSERT_TRUE(store->SetUpdater(Add).ok());
    std::vector<std::thread> threads;
    for (int i = 0; i < kThreads; ++i) {
      threads.emplace_back([&store, i] {
        const Key own = "own" + std::to_string(i);
        ASSERT_TRUE(InitKey(*store, own, {0}).ok());
        Values out(1);
        for (int n = 0; n < kPushes; ++n) {
          ASSERT_TRUE(store->Push("shared", Values{1}, 0).ok());
          ASSERT_TRUE(store->PushPull(own, Values{1}, out, 0).ok());
          ASSERT_EQ(out[0], n + 1);
          ASSERT_TRUE(store->SetUpdater(Add).ok());
          (void)store->totals();
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    EXPECT_THAT(PullOf(*store, "shared", 1), ElementsAre(kThreads * kPushes));
  }
}

}  // namespace
}  // namespace slimps
