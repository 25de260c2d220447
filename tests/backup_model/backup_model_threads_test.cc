// SPDX-License-Identifier: Apache-2.0
// BackupModel with real threads. The tests assert values and the order of events, never a time.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <optional>
#include <thread>
#include <tuple>
#include <vector>

#include "backup_model/backup_model.h"
#include "proto/base/clock.h"
#include "proto/base/mutex.h"
#include "tests/backup_model/fake_store.h"

namespace slimps {
namespace {

// Only a hang reaches this deadline.
SteadyTime Deadline() { return MachineClock()->Now() + absl::Seconds(50); }

// Records the events of all tensors in the order in which they happen. Thread-safe.
class Recorder final {
 public:
  std::function<void(const BackupEvent&)> Callback() {
    return [this](const BackupEvent& event) {
      MutexLock lock(&mutex_);
      events_.push_back(event);
    };
  }

  // Returns the event's position among all events. Fails the test if the event never happened.
  size_t At(TensorEvent event, int64_t number, size_t tensor = 0) {
    MutexLock lock(&mutex_);
    for (size_t k = 0; k < events_.size(); ++k) {
      const BackupEvent& e = events_[k];
      if (e.event == event && e.number == number && e.tensor == tensor) return k;
    }
    ADD_FAILURE() << TensorEventName(event) << " " << number << " never happened";
    return 0;
  }

 private:
  Mutex mutex_;
  std::vector<BackupEvent> events_ ABSL_GUARDED_BY(mutex_);
};

struct Model {
  std::vector<Values> initial;
  std::unique_ptr<BackupModel> model;
};

Model MakeModel(std::vector<size_t> sizes, BackupModelOptions options) {
  Model made;
  std::vector<BackupTensor> tensors;
  for (size_t t = 0; t < sizes.size(); ++t) made.initial.push_back(InitialWeights(t, sizes[t]));
  for (size_t t = 0; t < sizes.size(); ++t) {
    tensors.push_back({"s:tensor" + std::to_string(t), made.initial[t]});
  }
  made.model = *BackupModel::Create(std::move(options), tensors);
  return made;
}

TEST(BackupModelThreads, AnIterationComputesWhileTheRoundBeforeIsInFlight) {
  Recorder recorder;
  Model made = MakeModel({64}, {.updater = {}, .on_event = recorder.Callback()});
  BackupModel& model = *made.model;
  constexpr int64_t kIterations = 20;
  // The network delivers round i only after iteration i+1 has computed. If that iteration needed
  // round i, or anything that arrives with it, each would wait for the other until the deadline.
  Mutex mutex;
  CondVar changed;
  int64_t computed = 0;
  std::vector<std::span<float>> ordered;  // of version 1, 2, ...
  std::thread network([&] {
    for (int64_t version = 1; version <= kIterations; ++version) {
      std::span<float> glo_buf;
      {
        MutexLock lock(&mutex);
        const auto ready = [&] {
          return computed > version && static_cast<int64_t>(ordered.size()) >= version;
        };
        const SteadyTime deadline = Deadline();
        while (!ready() && MachineClock()->Now() < deadline)
          changed.WaitFor(&mutex, deadline - MachineClock()->Now());
        if (!ready()) return model.FailAll(absl::AbortedError("the worker waits for the network"));
        glo_buf = ordered[static_cast<size_t>(version - 1)];
      }
      std::ranges::fill(glo_buf, static_cast<float>(version));
      EXPECT_TRUE(model.CommitGlobal(0, version).ok());
    }
  });
  for (int64_t i = 1; i <= kIterations + 1; ++i) {
    Values gradient;
    {
      auto lease = model.AcquireRead(0, i, Deadline());
      ASSERT_TRUE(lease.ok()) << lease.status();
      gradient = Gradient(lease->weights(), i);
    }
    {
      MutexLock lock(&mutex);
      computed = i;
      changed.NotifyAll();
    }
    if (i > kIterations) break;
    const absl::Status finished = model.FinishIteration(0, i, gradient, Deadline());
    ASSERT_TRUE(finished.ok()) << finished;
    auto glo_buf = model.BeginGlobalWrite(0, i);
    ASSERT_TRUE(glo_buf.ok()) << glo_buf.status();
    MutexLock lock(&mutex);
    ordered.push_back(*glo_buf);
    changed.NotifyAll();
  }
  network.join();
  for (int64_t i = 1; i < kIterations; ++i) {
    // Round i is in flight from its BeginGlobal to its GlobalArrived; iteration i+1 lies between.
    EXPECT_LT(recorder.At(TensorEvent::kBeginGlobal, i),
              recorder.At(TensorEvent::kAcquireRead, i + 1));
    EXPECT_LT(recorder.At(TensorEvent::kReleaseRead, i + 1),
              recorder.At(TensorEvent::kGlobalArrived, i));
    // At most one round is in flight: iteration i+2 waited for this one.
    EXPECT_LT(recorder.At(TensorEvent::kGlobalArrived, i),
              recorder.At(TensorEvent::kMergeGlobal, i));
    EXPECT_LT(recorder.At(TensorEvent::kMergeGlobal, i),
              recorder.At(TensorEvent::kLocalUpdate, i + 1));
    if (i + 2 <= kIterations) {
      EXPECT_LT(recorder.At(TensorEvent::kLocalUpdate, i + 1),
                recorder.At(TensorEvent::kAcquireRead, i + 2));
    }
  }
}

// Trains `iterations` with the fake store. The seed decides the order in which tensors finish.
std::vector<TensorHistory> Train(const LocalUpdaterOptions& updater, std::vector<size_t> sizes,
                                 int64_t iterations, uint32_t seed) {
  Model made = MakeModel(sizes, {.updater = updater, .on_event = nullptr});
  BackupModel& model = *made.model;
  std::vector<TensorHistory> history(sizes.size());
  FakeStore store(&model, made.initial, seed);
  std::mt19937 random(seed + 1);
  std::vector<size_t> order(sizes.size());
  for (size_t t = 0; t < order.size(); ++t) order[t] = t;
  for (int64_t i = 1; i <= iterations + 1; ++i) {
    std::ranges::shuffle(order, random);
    for (const size_t t : order) {
      Values gradient;
      {
        auto lease = model.AcquireRead(t, i, Deadline());
        EXPECT_TRUE(lease.ok()) << lease.status();
        if (!lease.ok()) return {};
        history[t].local.emplace_back(lease->weights().begin(), lease->weights().end());
        gradient = Gradient(lease->weights(), i);
        for (uint32_t yields = random() % 3; yields > 0; --yields) std::this_thread::yield();
      }
      if (i > iterations) continue;
      const absl::Status finished = model.FinishIteration(t, i, gradient, Deadline());
      EXPECT_TRUE(finished.ok()) << finished;
      auto glo_buf = model.BeginGlobalWrite(t, i);
      EXPECT_TRUE(glo_buf.ok()) << glo_buf.status();
      if (!glo_buf.ok()) return {};
      store.PushPull(t, i, std::move(gradient), *glo_buf);
    }
  }
  const absl::Status drained = model.Drain(iterations, Deadline());
  EXPECT_TRUE(drained.ok()) << drained;
  for (size_t t = 0; t < sizes.size(); ++t) {
    history[t].global.assign(model.Global(t).begin(), model.Global(t).end());
  }
  return history;
}

TEST(BackupModelThreads, AnyTimingGivesTheBitsOfTheSequentialDefinition) {
  const std::vector<size_t> sizes = {1, 257, 1000};
  constexpr int64_t kIterations = 50;
  for (const LocalUpdaterOptions& updater :
       {LocalUpdaterOptions{.learning_rate = 0.05},
        LocalUpdaterOptions{.update = {.momentum = 0.9}, .learning_rate = 0.05},
        LocalUpdaterOptions{.update = {.kind = UpdateKind::kAdam}, .learning_rate = 0.01}}) {
    std::vector<TensorHistory> expected;
    for (size_t t = 0; t < sizes.size(); ++t) {
      expected.push_back(SequentialHistory(updater, InitialWeights(t, sizes[t]), kIterations));
    }
    for (uint32_t seed = 0; seed < 5; ++seed) {
      const std::vector<TensorHistory> history = Train(updater, sizes, kIterations, seed);
      ASSERT_EQ(history.size(), expected.size());
      for (size_t t = 0; t < sizes.size(); ++t) {
        ASSERT_EQ(history[t].local.size(), expected[t].local.size());
        for (size_t i = 0; i < history[t].local.size(); ++i) {
          ASSERT_EQ(history[t].local[i], expected[t].local[i])
              << "tensor " << t << ", iteration " << i + 1 << ", seed " << seed;
        }
        ASSERT_EQ(history[t].global, expected[t].global) << "tensor " << t << ", seed " << seed;
      }
    }
  }
}

// In every w_loc and every version all elements are equal, and the value differs between
// iterations. A torn or half-merged read would show two values.
TEST(BackupModelThreads, ReadersNeverSeeTwoIterationsMixed) {
  constexpr int64_t kIterations = 150;
  constexpr size_t kElements = 4096;
  const Values initial(kElements, 0.0f), ones(kElements, 1.0f);
  const BackupTensor tensors[] = {{"s:w", initial}};
  auto model =
      *BackupModel::Create({.updater = {.learning_rate = 0.25}, .on_event = nullptr}, tensors);
  // w_loc(i+1) = version(i-1) - 0.25, version(v) = 4v.
  const auto expected = [](int64_t i) {
    return i == 1 ? 0.0f : static_cast<float>(4 * (i - 2)) - 0.25f;
  };
  const auto check = [&](int64_t i, std::span<const float> weights) {
    for (const float x : weights) {
      if (x != expected(i)) {
        ADD_FAILURE() << "iteration " << i << " shows " << x << ", expected " << expected(i);
        return;
      }
    }
  };
  std::vector<std::thread> readers;
  std::vector<int64_t> reads(3, 0);
  for (size_t r = 0; r < reads.size(); ++r) {
    readers.emplace_back([&, r] {
      for (int64_t i = 1; i <= kIterations; ++i) {
        auto lease = model->AcquireRead(0, i, Deadline());
        if (absl::IsFailedPrecondition(lease.status())) continue;  // this iteration is over
        ASSERT_TRUE(lease.ok()) << lease.status();
        check(i, lease->weights());
        ++reads[r];
      }
    });
  }
  std::thread network;
  for (int64_t i = 1; i <= kIterations; ++i) {
    {
      auto lease = model->AcquireRead(0, i, Deadline());
      ASSERT_TRUE(lease.ok()) << lease.status();
      check(i, lease->weights());
    }
    const absl::Status finished = model->FinishIteration(0, i, ones, Deadline());
    ASSERT_TRUE(finished.ok()) << finished;
    if (network.joinable()) network.join();
    auto glo_buf = model->BeginGlobalWrite(0, i);
    ASSERT_TRUE(glo_buf.ok()) << glo_buf.status();
    network = std::thread([&model, i, glo_buf = *glo_buf] {
      std::ranges::fill(glo_buf, static_cast<float>(4 * i));
      EXPECT_TRUE(model->CommitGlobal(0, i).ok());
    });
  }
  network.join();
  // The readers' last iteration may be over or still readable. The readers end in both cases.
  for (std::thread& reader : readers) reader.join();
  EXPECT_GT(reads[0] + reads[1] + reads[2], 0);
}

TEST(BackupModelThreads, TheMergeWaitsForTheLastReader) {
  Recorder recorder;
  Model made = MakeModel({16}, {.updater = {}, .on_event = recorder.Callback()});
  BackupModel& model = *made.model;
  std::optional<BackupModel::ReadLease> lease = *model.AcquireRead(0, 1, Deadline());
  const Values before(lease->weights().begin(), lease->weights().end());
  std::thread finisher(
      [&] { EXPECT_TRUE(model.FinishIteration(0, 1, Values(16, 1.0f), Deadline()).ok()); });
  for (int k = 0; k < 50; ++k) {
    EXPECT_TRUE(std::ranges::equal(lease->weights(), before));
    std::this_thread::yield();
  }
  lease.reset();
  finisher.join();
  EXPECT_LT(recorder.At(TensorEvent::kReleaseRead, 1), recorder.At(TensorEvent::kMergeGlobal, 0));
}

TEST(BackupModelThreads, FailAllWakesEveryWaiter) {
  Model made = MakeModel({16, 16}, {});
  BackupModel& model = *made.model;
  for (size_t t = 0; t < 2; ++t) {
    ASSERT_TRUE(model.AcquireRead(t, 1, Deadline()).ok());
    ASSERT_TRUE(model.FinishIteration(t, 1, Values(16, 1.0f), Deadline()).ok());
    ASSERT_TRUE(model.AcquireRead(t, 2, Deadline()).ok());
  }
  // Version 1 never arrives. Without FailAll each of these threads waits until the test is killed.
  const SteadyTime never = SteadyTime::InfiniteFuture();
  std::vector<absl::Status> results(5);
  std::vector<std::thread> waiters;
  Mutex mutex;
  CondVar changed;
  int started = 0;
  const auto wait = [&](size_t w, auto call) {
    waiters.emplace_back([&, w, call] {
      {
        MutexLock lock(&mutex);
        ++started;
        changed.NotifyAll();
      }
      results[w] = call();
    });
  };
  wait(0, [&] { return model.FinishIteration(0, 2, Values(16, 1.0f), never); });
  wait(1, [&] { return model.AcquireRead(0, 3, never).status(); });
  wait(2, [&] { return model.AcquireRead(1, 3, never).status(); });
  wait(3, [&] { return model.Drain(1, never); });
  wait(4, [&] { return model.WaitGlobal(1, 1, never); });
  {
    MutexLock lock(&mutex);
    while (started < 5) changed.Wait(&mutex);
  }
  for (int k = 0; k < 20; ++k)
    std::this_thread::yield();  // most of the waiters are asleep after this
  const absl::Status cause = absl::UnavailableError("server 0 at tcp://10.0.0.3:4711 is gone");
  model.FailAll(cause);
  for (std::thread& waiter : waiters) waiter.join();
  for (const absl::Status& result : results) EXPECT_EQ(result, cause);
}

}  // namespace
}  // namespace slimps
