// SPDX-License-Identifier: Apache-2.0
// A training job on fakes: its workers train on threads of their own, and share one FakeServer.
//
//   Job job(/*count=*/2, BackupOptions(4), /*samples=*/24);
//   EXPECT_EQ(job.workers[0].report->steps, 3u);
#ifndef SLIMPS_TESTS_WORKER_TRAINER_TRAIN_JOB_H_
#define SLIMPS_TESTS_WORKER_TRAINER_TRAIN_JOB_H_

#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "tests/worker/trainer/fake_model.h"
#include "tests/worker/trainer/fake_store.h"
#include "worker/trainer/train_loop.h"

namespace slimps {

inline constexpr double kLr = 0.125;

inline TrainOptions Options(size_t batch) {
  TrainOptions options;
  options.batch = batch;
  options.optimizer.set_kind(wire::OptimizerSpec::SGD);
  options.optimizer.set_learning_rate(kLr);
  options.optimizer.set_rescale_grad(1);
  options.optimizer.set_average(true);
  options.exchange.timeout = absl::Seconds(20);
  return options;
}

inline TrainOptions BackupOptions(size_t batch) {
  TrainOptions options = Options(batch);
  options.exchange.backup = BackupModelOptions();
  options.exchange.backup->updater.learning_rate = kLr;
  return options;
}

inline size_t IndexOf(const std::vector<std::string>& events, const std::string& event) {
  const auto found = std::find(events.begin(), events.end(), event);
  EXPECT_NE(found, events.end()) << event << " is missing";
  return static_cast<size_t>(found - events.begin());
}

// Runs `workers` workers on threads of their own. Calls `prepare` for each before it starts.
struct Job {
  struct Worker {
    Worker(FakeServer* server, uint32_t rank) : store(server, rank) {}
    FakeModel model;
    FakeStore store;
    absl::StatusOr<TrainingReport> report = absl::UnknownError("not run");
  };

  Job(uint32_t count, const TrainOptions& options, size_t samples,
      std::function<void(Worker*)> prepare = nullptr)
      : server(count) {
    const Dataset data = FakeData(samples);
    std::vector<std::thread> threads;
    for (uint32_t rank = 0; rank < count; ++rank) {
      Worker* worker = &workers.emplace_back(&server, rank);
      if (prepare) prepare(worker);
    }
    for (Worker& worker : workers) {
      threads.emplace_back(
          [&] { worker.report = Train(options, data, &worker.model, &worker.store, nullptr); });
    }
    for (std::thread& thread : threads) thread.join();
  }

  FakeServer server;
  std::deque<Worker> workers;
};

}  // namespace slimps

#endif  // SLIMPS_TESTS_WORKER_TRAINER_TRAIN_JOB_H_
