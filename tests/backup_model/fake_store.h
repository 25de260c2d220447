// SPDX-License-Identifier: Apache-2.0
// A parameter server for tests of the backup model. It takes gradients and delivers versions on a
// background thread, which answers in a seeded random order and writes glo_buf in small pieces.
// SequentialHistory() is the same training without threads.
#ifndef SLIMPS_TESTS_BACKUP_MODEL_FAKE_STORE_H_
#define SLIMPS_TESTS_BACKUP_MODEL_FAKE_STORE_H_

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <random>
#include <span>
#include <thread>
#include <utility>
#include <vector>

#include "backup_model/backup_model.h"
#include "proto/base/mutex.h"

namespace slimps {

using Values = std::vector<float>;

inline Values InitialWeights(size_t tensor, size_t elements) {
  Values values(elements);
  for (size_t k = 0; k < elements; ++k) values[k] = std::sin(static_cast<float>(tensor * 100 + k));
  return values;
}

// Returns a gradient that depends on every bit of `weights` and on the iteration.
inline Values Gradient(std::span<const float> weights, int64_t iteration) {
  Values gradient(weights.size());
  for (size_t k = 0; k < weights.size(); ++k) {
    const float neighbour = weights[(k + 1) % weights.size()];
    gradient[k] = 0.7f * weights[k] - 0.3f * neighbour * weights[k] +
                  0.01f * static_cast<float>((iteration * 31 + static_cast<int64_t>(k)) % 17);
  }
  return gradient;
}

// Turns version round-1 in `weights` into version `round`, from this worker's gradient and that of
// an imaginary second worker.
inline void ServerStep(Values& weights, std::span<const float> gradient, int64_t round) {
  for (size_t k = 0; k < weights.size(); ++k) {
    const float other = 0.05f * static_cast<float>((round * 13 + static_cast<int64_t>(k)) % 7 - 3);
    weights[k] -= 0.05f * (gradient[k] + other);
  }
}

// Thread-safe.
class FakeStore final {
 public:
  FakeStore(BackupModel* model, std::vector<Values> initial, uint32_t seed)
      : model_(model), weights_(std::move(initial)), random_(seed), thread_([this] { Run(); }) {}
  ~FakeStore() {
    {
      MutexLock lock(&mutex_);
      stopping_ = true;
      changed_.NotifyAll();
    }
    thread_.join();
  }

  // Orders version `version` of the tensor. The store's thread writes it to `glo_buf` and commits
  // it.
  void PushPull(size_t tensor, int64_t version, Values gradient, std::span<float> glo_buf) {
    MutexLock lock(&mutex_);
    orders_.push_back({tensor, version, std::move(gradient), glo_buf});
    changed_.NotifyAll();
  }

 private:
  struct Order {
    size_t tensor = 0;
    int64_t version = 0;
    Values gradient;
    std::span<float> glo_buf;
  };

  void Run() {
    while (true) {
      Order order;
      {
        MutexLock lock(&mutex_);
        while (orders_.empty() && !stopping_) changed_.Wait(&mutex_);
        if (orders_.empty()) return;
        // Several orders may gather before this thread picks one. That shuffles the arrivals.
        const size_t pick = random_() % orders_.size();
        order = std::move(orders_[pick]);
        orders_.erase(orders_.begin() + static_cast<ptrdiff_t>(pick));
      }
      Dawdle();
      Values& weights = weights_[order.tensor];
      ServerStep(weights, order.gradient, order.version);
      for (size_t k = 0; k < weights.size(); k += 16) {
        const size_t n = std::min<size_t>(16, weights.size() - k);
        std::copy_n(weights.begin() + static_cast<ptrdiff_t>(k), n, order.glo_buf.data() + k);
        if (random_() % 64 == 0) std::this_thread::yield();
      }
      const absl::Status status = model_->CommitGlobal(order.tensor, order.version);
      if (!status.ok()) model_->FailAll(status);
    }
  }

  // Delays for a random length without reading a clock.
  void Dawdle() {
    for (uint32_t yields = random_() % 4; yields > 0; --yields) std::this_thread::yield();
  }

  BackupModel* const model_;
  std::vector<Values> weights_;  // only the store's thread uses it
  std::mt19937 random_;          // only the store's thread uses it
  Mutex mutex_;
  CondVar changed_;
  std::vector<Order> orders_ ABSL_GUARDED_BY(mutex_);
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

// One tensor's w_loc(1), ..., w_loc(iterations+1) and its last version.
struct TensorHistory {
  std::vector<Values> local;
  Values global;
  friend bool operator==(const TensorHistory&, const TensorHistory&) = default;
};

// Computes the history by the definition, one iteration after the other:
//   w_loc(i+1) = version(i-1) - step(g_i)
//   version(i) = server(version(i-1), g_i)
inline TensorHistory SequentialHistory(const LocalUpdaterOptions& options, const Values& initial,
                                       int64_t iterations) {
  const LocalUpdater updater = *LocalUpdater::Create(options);
  LocalUpdaterState state;
  TensorHistory history{.local = {initial}, .global = initial};
  for (int64_t i = 1; i <= iterations; ++i) {
    const Values gradient = Gradient(history.local.back(), i);
    Values next(initial.size());
    updater.Step(history.global, gradient, updater.learning_rate(), state, next);
    history.local.push_back(std::move(next));
    ServerStep(history.global, gradient, i);
  }
  return history;
}

}  // namespace slimps

#endif  // SLIMPS_TESTS_BACKUP_MODEL_FAKE_STORE_H_
