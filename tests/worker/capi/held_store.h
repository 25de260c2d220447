// SPDX-License-Identifier: Apache-2.0
// A distributed KVStore without a job, for tests of the C API. Barriers and pulls wait until the
// test lets them go. It notes what it is asked for. It reads and writes no array.
//
//   HeldStore* held = nullptr;
//   const Store store = MakeHeld(std::make_shared<Notes>(), &held);
//   ... slimps_pull in the background ...
//   held->Answer("a", absl::OkStatus());
//
// Thread-safe.
#ifndef SLIMPS_TESTS_WORKER_CAPI_HELD_STORE_H_
#define SLIMPS_TESTS_WORKER_CAPI_HELD_STORE_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "proto/base/mutex.h"
#include "tests/worker/capi/c_api_fixture.h"
#include "worker/capi/c_api_handle.h"
#include "worker/kvstore.h"

namespace slimps {

// Outlives its store. Thread-safe.
class Notes final {
 public:
  void Add(const std::string& note) {
    MutexLock lock(&mutex_);
    notes_.push_back(note);
    if (std::this_thread::get_id() != maker_) threads_.push_back(note);
  }
  std::vector<std::string> all() const {
    MutexLock lock(&mutex_);
    return notes_;
  }
  // Returns those that were made on another thread than that of the test.
  std::vector<std::string> on_threads() const {
    MutexLock lock(&mutex_);
    return threads_;
  }
  void Clear() {
    MutexLock lock(&mutex_);
    notes_.clear();
    threads_.clear();
  }

 private:
  const std::thread::id maker_ = std::this_thread::get_id();
  mutable Mutex mutex_;
  std::vector<std::string> notes_ ABSL_GUARDED_BY(mutex_), threads_ ABSL_GUARDED_BY(mutex_);
};

class HeldStore final : public KVStore {
 public:
  using Done = std::function<void(absl::Status)>;

  explicit HeldStore(std::shared_ptr<Notes> notes) : notes_(std::move(notes)) {}
  ~HeldStore() override {
    Release(absl::UnavailableError("closed"));
    notes_->Add("closed");
  }

  // Ends what waits, and later calls at once.
  void Release(const absl::Status& status) {
    std::multimap<std::string, Done> pulls;
    {
      MutexLock lock(&mutex_);
      released_ = true;
      end_ = status;
      pulls.swap(pulls_);
      changed_.NotifyAll();
    }
    for (const auto& [key, done] : pulls) done(status);
  }

  // Sets the devices that outlive what uses them. Before the first call.
  void SetDevices(Devices* devices) { devices_ = devices; }

  // Lets barriers end well. Pulls still wait.
  void ReleaseBarriers() {
    MutexLock lock(&mutex_);
    barriers_released_ = true;
    changed_.NotifyAll();
  }

  // Answers the pull of a key. Waits until it is asked for.
  void Answer(const std::string& key, const absl::Status& status) {
    Done done;
    {
      MutexLock lock(&mutex_);
      while (!pulls_.contains(key)) changed_.Wait(&mutex_);
      const auto pull = pulls_.find(key);
      done = std::move(pull->second);
      pulls_.erase(pull);
    }
    done(status);
  }

  // Makes pushes of a key fail.
  void RefusePushes(const std::string& key, const absl::Status& status) { refused_[key] = status; }
  // Makes barriers throw what `thrower` throws.
  void ThrowAtBarriers(std::function<void()> thrower) { thrower_ = std::move(thrower); }

  // Sets how many bytes of pushes need not wait.
  void SetRoom(size_t bytes) { room_ = bytes; }
  Devices* devices() override { return devices_; }
  bool push_may_wait(size_t bytes) const override { return bytes > room_; }

  absl::Status Push(const Key& key, std::span<const float>, int) override {
    notes_->Add("push " + Name(key));
    const auto refused = refused_.find(Name(key));
    return refused == refused_.end() ? absl::OkStatus() : refused->second;
  }
  absl::Status PushRowSparse(const Key& key, std::span<const int64_t>,
                             std::span<const float> values, int priority) override {
    return Push(key, values, priority);
  }
  absl::Status PushLent(const Key& key, std::vector<LentGradient> gradients,
                        int priority) override {
    const absl::Status pushed = Push(key, gradients.at(0).values, priority);
    if (pushed.ok() && gradients[0].returned) gradients[0].returned(absl::OkStatus());
    return pushed;
  }
  void PullTo(const Key& key, LentTarget out, int priority) override {
    PullAsync(key, out.values, priority, std::move(out.done));
  }
  void PullAsync(const Key& key, std::span<float>, int, Done done) override {
    notes_->Add("pull " + Name(key));
    absl::Status end;
    {
      MutexLock lock(&mutex_);
      if (!released_) {
        pulls_.emplace(Name(key), std::move(done));
        changed_.NotifyAll();
        return;
      }
      end = end_;
    }
    done(end);
  }
  absl::Status Barrier() override {
    notes_->Add("barrier");
    if (thrower_) thrower_();
    absl::Status end;
    {
      MutexLock lock(&mutex_);
      while (!released_ && !barriers_released_) changed_.Wait(&mutex_);
      end = end_;
    }
    notes_->Add("barrier ends");
    return end;
  }
  void Abort(const absl::Status& why) override { Release(why); }

  absl::Status Init(const std::vector<InitTensor>&) override { return absl::OkStatus(); }
  absl::Status PushNothing(const Key&) override { return absl::OkStatus(); }
  absl::Status Pull(const Key&, std::span<float>, int) override { return absl::OkStatus(); }
  absl::Status PushPull(const Key&, std::span<const float>, std::span<float>, int) override {
    return absl::OkStatus();
  }
  absl::Status SetOptimizer(const wire::OptimizerSpec&) override { return absl::OkStatus(); }
  absl::Status ChangeCompression(std::string_view, CompressedKeys) override {
    return absl::OkStatus();
  }
  absl::StatusOr<std::vector<double>> AllReduceSumFor(std::string_view,
                                                      const std::vector<double>& values) override {
    return values;
  }
  absl::Status Wait() override { return absl::OkStatus(); }
  absl::Status Leave() override { return absl::OkStatus(); }
  absl::Status Close() override { return absl::OkStatus(); }
  uint32_t rank() const override { return 3; }
  uint32_t num_workers() const override { return 4; }
  std::string type() const override { return "dist_sync"; }
  StoreTotals totals() const override { return {}; }

 private:
  static std::string Name(const Key& key) { return key.typed_name().substr(2); }

  const std::shared_ptr<Notes> notes_;
  std::map<std::string, absl::Status> refused_;  // set before the first call
  std::function<void()> thrower_;                // set before the first call
  Devices* devices_ = nullptr;
  size_t room_ = SIZE_MAX;  // for the test's thread
  Mutex mutex_;
  CondVar changed_;
  std::multimap<std::string, Done> pulls_ ABSL_GUARDED_BY(mutex_);
  bool released_ ABSL_GUARDED_BY(mutex_) = false;
  bool barriers_released_ ABSL_GUARDED_BY(mutex_) = false;
  absl::Status end_ ABSL_GUARDED_BY(mutex_);
};

// Returns a handle, as slimps_create makes it. Sets `held` to its store, which notes its calls.
inline Store MakeHeld(std::shared_ptr<Notes> notes, HeldStore** held) {
  auto made = std::make_unique<HeldStore>(std::move(notes));
  *held = made.get();
  return Store(
      new slimps_store{std::make_shared<SharedStore>("dist_sync", std::move(made)), nullptr});
}

}  // namespace slimps

#endif  // SLIMPS_TESTS_WORKER_CAPI_HELD_STORE_H_
