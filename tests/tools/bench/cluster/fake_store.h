// SPDX-License-Identifier: Apache-2.0
// A KVStore without a job. It notes each call, in order. It answers pulls at once, or when the test
// releases them.
// Thread-safe.
#ifndef SLIMPS_TESTS_TOOLS_BENCH_CLUSTER_FAKE_STORE_H_
#define SLIMPS_TESTS_TOOLS_BENCH_CLUSTER_FAKE_STORE_H_

#include <algorithm>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "proto/base/mutex.h"
#include "worker/kvstore.h"

namespace slimps {

class FakeStore final : public KVStore {
 public:
  // Returns the events: "init a", "push a 1 priority -3", "pull a 1" (when asked), "wait",
  // "release".
  std::vector<std::string> events() const {
    MutexLock lock(&mutex_);
    return events_;
  }
  void ClearEvents() {
    MutexLock lock(&mutex_);
    events_.clear();
  }

  // Waits until `event` is noted. Returns false if that takes too long.
  bool AwaitEvent(const std::string& event) const {
    MutexLock lock(&mutex_);
    return noted_.Await(&mutex_, absl::Seconds(60), [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
      return std::find(events_.begin(), events_.end(), event) != events_.end();
    });
  }

  // Holds pulls from now on until Release().
  void HoldPulls() {
    MutexLock lock(&mutex_);
    holding_ = true;
  }
  void Release(const absl::Status& status = absl::OkStatus()) {
    std::vector<std::function<void(absl::Status)>> answers;
    {
      MutexLock lock(&mutex_);
      Note("release");
      holding_ = false;
      answers.swap(held_);
    }
    for (const auto& done : answers) done(status);
  }
  void set_measuring(bool measuring) {
    MutexLock lock(&mutex_);
    measuring_ = measuring;
  }

  absl::Status Init(const std::vector<InitTensor>& tensors) override {
    MutexLock lock(&mutex_);
    for (const InitTensor& tensor : tensors) Note("init " + Name(tensor.key));
    return absl::OkStatus();
  }
  absl::Status Push(const Key& key, std::span<const float>, int priority) override {
    MutexLock lock(&mutex_);
    Note("push " + Name(key) + " " + std::to_string(++rounds_[Name(key)]) + " priority " +
         std::to_string(priority));
    return absl::OkStatus();
  }
  absl::Status Pull(const Key& key, std::span<float> out, int) override {
    MutexLock lock(&mutex_);
    Fill(key, out);
    return absl::OkStatus();
  }
  absl::Status PushLent(const Key&, std::vector<LentGradient>, int) override {
    return absl::UnimplementedError("a fake store takes no lent gradients");
  }
  void PullTo(const Key& key, LentTarget out, int priority) override {
    PullAsync(key, out.values, priority, std::move(out.done));
  }
  void PullAsync(const Key& key, std::span<float> out, int,
                 std::function<void(absl::Status)> done) override {
    {
      MutexLock lock(&mutex_);
      Note("pull " + Name(key) + " " + std::to_string(rounds_[Name(key)]));
      Fill(key, out);
      if (holding_) {
        held_.push_back(std::move(done));
        return;
      }
    }
    done(absl::OkStatus());
  }
  absl::Status Wait() override {
    MutexLock lock(&mutex_);
    Note("wait");
    return absl::OkStatus();
  }
  bool measuring() const override {
    MutexLock lock(&mutex_);
    return measuring_;
  }

  absl::Status PushNothing(const Key&) override { return absl::OkStatus(); }
  absl::Status PushPull(const Key&, std::span<const float>, std::span<float>, int) override {
    return absl::OkStatus();
  }
  absl::Status SetOptimizer(const wire::OptimizerSpec&) override { return absl::OkStatus(); }
  absl::Status ChangeCompression(std::string_view, CompressedKeys) override {
    return absl::OkStatus();
  }
  absl::Status Barrier() override { return absl::OkStatus(); }
  absl::StatusOr<std::vector<double>> AllReduceSumFor(std::string_view,
                                                      const std::vector<double>& values) override {
    return values;
  }
  absl::Status Leave() override { return absl::OkStatus(); }
  absl::Status Close() override { return absl::OkStatus(); }
  uint32_t rank() const override { return 0; }
  uint32_t num_workers() const override { return 1; }
  std::string type() const override { return "dist_sync"; }
  StoreTotals totals() const override { return {}; }

 private:
  static std::string Name(const Key& key) { return key.typed_name().substr(2); }
  void Note(std::string event) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    events_.push_back(std::move(event));
    noted_.NotifyAll();
  }
  // The weights of version v are v.
  void Fill(const Key& key, std::span<float> out) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    std::fill(out.begin(), out.end(), static_cast<float>(rounds_[Name(key)]));
  }

  mutable Mutex mutex_;
  mutable CondVar noted_;
  std::vector<std::string> events_ ABSL_GUARDED_BY(mutex_);
  std::map<std::string, int> rounds_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::function<void(absl::Status)>> held_ ABSL_GUARDED_BY(mutex_);
  bool holding_ ABSL_GUARDED_BY(mutex_) = false;
  bool measuring_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace slimps

#endif  // SLIMPS_TESTS_TOOLS_BENCH_CLUSTER_FAKE_STORE_H_
