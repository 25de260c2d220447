// SPDX-License-Identifier: Apache-2.0
#include "tests/simulation/job_plan.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace slimps {
namespace {

std::vector<float> Normal(size_t elements, uint64_t seed) {
  Draws random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> values(elements);
  for (float& value : values) value = normal(random);
  return values;
}

template <typename T>
const T& OneOf(const std::vector<T>& choices, Draws* random) {
  return choices[(*random)() % choices.size()];
}

std::vector<ReferenceTensor> DrawTensors(Draws* random) {
  std::vector<ReferenceTensor> tensors;
  const size_t count = 1 + (*random)() % 4;
  for (size_t i = 0; i < count; ++i) {
    const size_t row = 1 + (*random)() % 8;
    const size_t rows = 1 + (*random)() % (OneIn(3, random) ? 60 : 12);
    tensors.push_back({.key = Key(absl::StrCat("t", i)),
                       .dtype = OneIn(4, random) ? wire::FLOAT16 : wire::FLOAT32,
                       .layer = wire::DENSE,
                       .value = Normal(row * rows, 77 + i),
                       .row_elements = static_cast<int64_t>(row)});
  }
  return tensors;
}

FaultPlan DrawFaults(Draws* random) {
  FaultPlan plan{.seed = (*random)()};
  if (OneIn(4, random)) return plan;  // none
  const double* const loses[] = {&plan.drop, &plan.truncate, &plan.delay};
  const bool lossless = OneIn(4, random);
  for (double* const fault :
       {&plan.drop, &plan.duplicate, &plan.truncate, &plan.reorder, &plan.delay}) {
    if (lossless && std::ranges::find(loses, fault) != std::end(loses)) continue;
    if (OneIn(2, random)) *fault = OneOf<double>({0.01, 0.05, lossless ? 0.5 : 0.15}, random);
  }
  plan.delay_messages = 1 + (*random)() % 8;
  return plan;
}

// The fold: every round of every worker, once, by one thread.
std::vector<Weights> Fold(const JobPlan& plan, uint32_t workers) {
  const int known = plan.measured ? kPreSteps : plan.rounds;
  std::vector<Weights> expected(static_cast<size_t>(known) + 1);
  for (const ReferenceTensor& tensor : plan.tensors) {
    ReferenceTensorJob fold(tensor, {.compression = plan.codec,
                                     .partition_elements = kPartitionElements,
                                     .workers = workers,
                                     .learning_rate = plan.optimizer ? kLearningRate : 0,
                                     .mode = plan.mode,
                                     .measured_rounds = plan.measured ? kPreSteps : 0ull});
    expected[0].push_back(fold.Pulled());
    for (int round = 1; round <= known; ++round) {
      Weights gradients;
      for (uint32_t worker = 0; worker < workers; ++worker) {
        gradients.push_back(GradientOf(tensor, worker, round));
      }
      fold.Round(gradients);
      expected[static_cast<size_t>(round)].push_back(fold.Pulled());
    }
  }
  return expected;
}

// What is lost is sent again many rounds later, when others have gone on.
void HardlyLose(JobPlan* plan) {
  plan->faults = {.seed = plan->faults.seed, .drop = 0.004};
  plan->retry_interval = absl::Seconds(5);
  plan->latency = absl::ZeroDuration();
  plan->tensors.erase(plan->tensors.begin() + 1, plan->tensors.end());
  plan->rounds += 24;
  plan->awaits_acknowledgements = false;
}

}  // namespace

std::vector<float> GradientOf(const ReferenceTensor& tensor, uint32_t worker, int round) {
  return Normal(tensor.value.size(),
                1'000'003 * static_cast<uint64_t>(round) + 1009 * worker + tensor.value.size());
}

JobPlan DrawPlan(uint64_t seed, uint32_t workers) {
  Draws random(seed);
  JobPlan plan;
  plan.codec = OneOf<std::string>({"none", "none", "fp16", "1bit", "2bit", "topk:ratio=0.1",
                                   "qsgd:bits=4", "dgc:ratio=0.1,warmup=1", "signsgd", "drive"},
                                  &random);
  const bool votes = plan.codec == "signsgd";
  plan.mode = !votes && OneIn(4, &random) ? wire::DIST_ASYNC : wire::DIST_SYNC;
  plan.optimizer = plan.mode == wire::DIST_ASYNC || !OneIn(3, &random);
  plan.measured = plan.mode == wire::DIST_SYNC && OneIn(5, &random);
  plan.rounds = (plan.measured ? kPreSteps + 1 : 2) + static_cast<int>(random() % 10);
  if (OneIn(4, &random)) plan.rounds += 16;
  plan.tensors = DrawTensors(&random);
  plan.faults = DrawFaults(&random);
  plan.latency = OneOf<absl::Duration>(
      {absl::ZeroDuration(), absl::ZeroDuration(), absl::Milliseconds(1), absl::Milliseconds(50)},
      &random);
  plan.shard_threads = 1 + random() % 3;
  plan.retry_interval =
      plan.loses_nothing()
          ? kPatience
          : OneOf<absl::Duration>({absl::Milliseconds(100), absl::Milliseconds(200),
                                   absl::Seconds(1), absl::Seconds(5)},
                                  &random);
  if (OneIn(8, &random)) HardlyLose(&plan);
  plan.expected = Fold(plan, workers);
  return plan;
}

}  // namespace slimps
