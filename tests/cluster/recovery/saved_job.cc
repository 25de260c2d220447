// SPDX-License-Identifier: Apache-2.0
#include "tests/cluster/recovery/saved_job.h"

#include <filesystem>

#include "absl/strings/str_cat.h"
#include "proto/base/mutex.h"

namespace slimps {
namespace {

size_t ElementsOf(const std::vector<int64_t>& shape) {
  size_t elements = 1;
  for (const int64_t extent : shape) elements *= static_cast<size_t>(extent);
  return elements;
}

}  // namespace

Job MakeJob(const std::string& compression, const std::string& pulls, uint32_t servers) {
  Job job{.cluster = {.workers = 2, .servers = servers}};
  job.cluster.store.compression = compression;
  job.cluster.store.fixed_threshold_bytes = 0;
  job.cluster.store.pull_compression = pulls;
  job.cluster.store.fixed_pull_threshold_bytes = 0;
  job.cluster.store.partition_bytes = 2000;
  job.cluster.store.grad_scale = 4;
  job.optimizer.set_rescale_grad(0.25);
  // A schedule and a codec's random choices count rounds.
  job.optimizer.mutable_schedule()->set_kind(wire::LearningRateSchedule::STEP);
  job.optimizer.mutable_schedule()->set_every(3);
  job.optimizer.mutable_schedule()->set_factor(0.5);
  return job;
}

void UseMoments(wire::OptimizerSpec::Kind kind, wire::OptimizerSpec* optimizer) {
  optimizer->set_kind(kind);
  optimizer->set_momentum(0);
  optimizer->set_beta1(0.9);
  optimizer->set_beta2(0.99);
  optimizer->set_epsilon(1e-8);
}

std::string NewFolder(const std::string& name) {
  const std::string folder =
      std::filesystem::path(absl::StrCat(::testing::TempDir(), "/", name)).lexically_normal();
  std::filesystem::remove_all(folder);
  return folder;
}

void Begin(KVStore& store, const Job& job, std::vector<std::vector<float>>* weights) {
  std::vector<InitTensor> tensors;
  for (size_t k = 0; k < job.shapes.size(); ++k) {
    // A job that loads begins with other values.
    weights->push_back(Random(ElementsOf(job.shapes[k]), (job.load.empty() ? 100 : 700) + k));
  }
  for (size_t k = 0; k < job.shapes.size(); ++k) {
    tensors.push_back(
        {.key = absl::StrCat("w", k), .shape = job.shapes[k], .value = (*weights)[k]});
  }
  ASSERT_STATUS_OK(store.Init(tensors));
  // A job that loads begins with other numbers.
  wire::OptimizerSpec optimizer = job.optimizer;
  if (!job.load.empty()) optimizer.set_learning_rate(1);
  ASSERT_STATUS_OK(store.SetOptimizer(optimizer));
  ASSERT_STATUS_OK(store.Barrier());
  for (size_t k = 0; k < job.shapes.size(); ++k) {
    ASSERT_STATUS_OK(store.Pull(tensors[k].key, (*weights)[k], 0));
  }
}

void Step(KVStore& store, const Job& job, int round, std::vector<std::vector<float>>* weights) {
  for (size_t k = 0; k < job.shapes.size(); ++k) {
    const std::string key = absl::StrCat("w", k);
    if (round == job.skips && store.rank() == 1 && k == 0) {
      ASSERT_STATUS_OK(store.PushNothing(key));
      continue;
    }
    const auto seed = static_cast<uint64_t>(1000 * round) + 10 * k + store.rank();
    ASSERT_STATUS_OK(store.Push(key, Random(ElementsOf(job.shapes[k]), seed), 0));
  }
  for (size_t k = 0; k < job.shapes.size(); ++k) {
    ASSERT_STATUS_OK(store.Pull(absl::StrCat("w", k), (*weights)[k], 0));
  }
}

End Train(const Job& job) {
  InProcessCluster cluster(job.cluster);
  Mutex mutex;
  End end;
  cluster.RunWorkers([&](KVStore& store) {
    std::vector<std::vector<float>> weights;
    ASSERT_NO_FATAL_FAILURE(Begin(store, job, &weights));
    int done = 0;
    if (!job.load.empty()) {
      const auto loaded = store.Load(job.load);
      ASSERT_STATUS_OK(loaded.status());
      done = static_cast<int>(loaded->rounds);
      EXPECT_EQ(loaded->own_state, absl::StrCat("own ", store.rank()));
    }
    for (int round = done + 1; round <= job.to; ++round) {
      ASSERT_NO_FATAL_FAILURE(Step(store, job, round, &weights));
      if (round != job.save_after) continue;
      ASSERT_STATUS_OK(store.Save(job.save, absl::StrCat("own ", store.rank())));
    }
    ASSERT_STATUS_OK(store.AwaitSaved());
    const auto residuals = store.SaveResiduals();
    ASSERT_STATUS_OK(residuals.status());
    const auto states = store.SaveOptimizerStates();
    ASSERT_STATUS_OK(states.status());
    MutexLock lock(&mutex);
    end.weights = weights;
    end.states = *states;
    end.residuals[store.rank()] = *residuals;
  });
  return end;
}

void SaveJob(const Job& like, const std::string& folder) {
  Job job = like;
  job.save = folder;
  job.save_after = job.to = 4;
  Train(job);
}

}  // namespace slimps
