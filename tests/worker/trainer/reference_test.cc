// SPDX-License-Identifier: Apache-2.0
// Training over workers against plain libtorch with the whole batch. The store is the fake, so this
// compares the trainer: parts of the data, averaging, scaling. Tests over real servers use the same
// reference.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <thread>

#include "tests/worker/trainer/fake_store.h"
#include "tests/worker/trainer/reference_training.h"
#include "tests/worker/trainer/synthetic_data.h"
#include "worker/trainer/options.h"
#include "worker/trainer/train_loop.h"

namespace slimps {
namespace {

struct Case {
  const char* name;
  const char* model;
  const char* optimizer;
  uint32_t workers;
  size_t steps;
};

class AgainstLibtorch : public ::testing::TestWithParam<Case> {};

// Returns the largest difference between any two weights.
float LargestDifference(const std::vector<std::vector<float>>& expected,
                        std::span<const Parameter> got) {
  EXPECT_EQ(expected.size(), got.size());
  float largest = 0;
  for (size_t i = 0; i < expected.size(); ++i) {
    EXPECT_EQ(expected[i].size(), got[i].values.size());
    for (size_t k = 0; k < expected[i].size(); ++k) {
      largest = std::max(largest, std::abs(expected[i][k] - got[i].values[k]));
    }
  }
  return largest;
}

TEST_P(AgainstLibtorch, WeightsAgreeToWithin1e5) {
  const Case& param = GetParam();
  SetComputeThreads(1);
  const Dataset data = SyntheticImages(160, {1, 28, 28});
  WorkerFlags flags;
  flags.model = param.model;
  flags.optimizer = param.optimizer;
  flags.lr = 0.05;
  flags.batch = 16 / param.workers;
  flags.epochs = 10;
  flags.max_steps = static_cast<int64_t>(param.steps);
  flags.seed = 3;
  flags.store = {{"scheduler", "unused:1"}, {"num_workers", std::to_string(param.workers)}};
  const auto options = CheckWorkerFlags(flags);
  ASSERT_TRUE(options.ok()) << options.status();

  FakeServer server(param.workers);
  std::vector<std::unique_ptr<Model>> models;
  std::vector<std::thread> threads;
  for (uint32_t rank = 0; rank < param.workers; ++rank) {
    models.push_back(*MakeModel(param.model, data, 3 + rank));  // rank 0's weights count
  }
  std::vector<absl::Status> results(param.workers);
  for (uint32_t rank = 0; rank < param.workers; ++rank) {
    threads.emplace_back([&, rank] {
      FakeStore store(&server, rank, options->store.grad_scale);
      results[rank] = Train(options->train, data, models[rank].get(), &store, nullptr).status();
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const absl::Status& result : results) ASSERT_TRUE(result.ok()) << result;

  const auto reference =
      TrainInPlainLibtorch({.model = param.model,
                            .steps = param.steps,
                            .batch = 16,
                            .seed = 3,
                            .learning_rate = 0.05,
                            .momentum = std::string(param.optimizer) == "momentum" ? 0.9 : 0.0},
                           data);
  EXPECT_LT(LargestDifference(reference, models[0]->parameters()), 1e-5f);
  EXPECT_EQ(LargestDifference(reference, models[0]->parameters()),
            LargestDifference(reference, models[param.workers - 1]->parameters()));
}

INSTANTIATE_TEST_SUITE_P(Training, AgainstLibtorch,
                         ::testing::Values(Case{"lenet1", "lenet", "sgd", 1, 50},
                                           Case{"lenet2", "lenet", "sgd", 2, 50},
                                           Case{"lenet2momentum", "lenet", "momentum", 2, 20},
                                           Case{"mlp4", "mlp", "sgd", 4, 30}),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace slimps
