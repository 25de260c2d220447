// SPDX-License-Identifier: Apache-2.0
// A parameter server inside the test's process. Every worker has a FakeStore, and all stores share
// one FakeServer. The server steps by SGD when a round is complete, and keeps every version. A
// store records its calls in order, and a test can hold its pulls back.
#ifndef SLIMPS_TESTS_WORKER_TRAINER_FAKE_STORE_H_
#define SLIMPS_TESTS_WORKER_TRAINER_FAKE_STORE_H_

#include <algorithm>
#include <cmath>
#include <condition_variable>
#include <functional>
#include <limits>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "proto/learning_rate.h"
#include "proto/limits.h"
#include "worker/kvstore.h"

namespace slimps {

class FakeStore;

// Thread-safe.
class FakeServer {
 public:
  explicit FakeServer(uint32_t workers) : workers_(workers) {}

  void Init(const Key& key, std::span<const float> value) {
    std::lock_guard<std::mutex> lock(mutex_);
    tensors_.try_emplace(key.typed_name()).first->second.versions = {
        std::vector<float>(value.begin(), value.end())};
  }
  void SetOptimizer(const wire::OptimizerSpec& spec) {
    std::lock_guard<std::mutex> lock(mutex_);
    spec_ = spec;
  }
  // Counts a contribution to `round`, and steps once all workers have contributed. An empty
  // `gradient` contributes nothing.
  void Push(const Key& key, uint32_t rank, uint64_t round, std::vector<float> gradient) {
    std::vector<std::function<void()>> ready;
    {
      std::lock_guard<std::mutex> lock(mutex_);
      Tensor& tensor = tensors_.at(key.typed_name());
      tensor.rounds[round][rank] = std::move(gradient);
      while (tensor.rounds[tensor.versions.size()].size() == workers_) Step(&tensor);
      for (auto waiting = tensor.waiting.begin(); waiting != tensor.waiting.end();) {
        if (waiting->first >= tensor.versions.size()) break;
        ready.push_back(std::move(waiting->second));
        waiting = tensor.waiting.erase(waiting);
      }
    }
    for (auto& call : ready) call();
  }

  // Calls `ready` once there is a `version`.
  void WhenAvailable(const Key& key, uint64_t version, std::function<void()> ready) {
    {
      std::lock_guard<std::mutex> lock(mutex_);
      Tensor& tensor = tensors_.at(key.typed_name());
      if (version >= tensor.versions.size()) {
        tensor.waiting.emplace(version, std::move(ready));
        return;
      }
    }
    ready();
  }
  std::vector<float> Read(const Key& key, uint64_t version) const {
    std::lock_guard<std::mutex> lock(mutex_);
    return tensors_.at(key.typed_name()).versions.at(version);
  }
  wire::OptimizerSpec optimizer() const {
    std::lock_guard<std::mutex> lock(mutex_);
    return spec_;
  }

  // A barrier over all workers. Returns the sums of their values.
  std::vector<double> Sum(const std::vector<double>& values) {
    std::unique_lock<std::mutex> lock(mutex_);
    sum_.resize(values.size());
    for (size_t i = 0; i < values.size(); ++i) sum_[i] += values[i];
    const uint64_t generation = generation_;
    if (++arrived_ == workers_) {
      arrived_ = 0;
      ++generation_;
      last_sum_ = std::exchange(sum_, {});
      released_.notify_all();
    }
    released_.wait(lock, [&] { return generation_ != generation; });
    return last_sum_;
  }
  uint32_t workers() const { return workers_; }

 private:
  struct Tensor {
    std::vector<std::vector<float>> versions;
    std::map<uint64_t, std::map<uint32_t, std::vector<float>>> rounds;
    std::vector<float> momentum;
    std::multimap<uint64_t, std::function<void()>> waiting;  // by version
  };

  void Step(Tensor* tensor) {
    std::vector<float> weights = tensor->versions.back();
    std::vector<float> sum(weights.size());
    float contributed = 0;
    for (const auto& [rank, gradient] : tensor->rounds[tensor->versions.size()]) {
      if (gradient.empty()) continue;
      ++contributed;
      for (size_t i = 0; i < sum.size(); ++i) sum[i] += gradient[i];
    }
    tensor->momentum.resize(sum.size());
    const double rate =
        LearningRateAt(spec_.learning_rate(), spec_.schedule(), tensor->versions.size());
    const float scale = static_cast<float>(spec_.rescale_grad()) / std::max(1.0f, contributed);
    for (size_t i = 0; i < sum.size(); ++i) {
      tensor->momentum[i] =
          static_cast<float>(spec_.momentum()) * tensor->momentum[i] + sum[i] * scale;
      weights[i] -= static_cast<float>(rate) * tensor->momentum[i];
    }
    tensor->versions.push_back(std::move(weights));
  }

  const uint32_t workers_;
  mutable std::mutex mutex_;
  std::condition_variable released_;
  std::map<std::string, Tensor> tensors_;
  wire::OptimizerSpec spec_;
  std::vector<double> sum_, last_sum_;
  uint32_t arrived_ = 0;
  uint64_t generation_ = 0;
};

// Thread-safe where KVStore is.
class FakeStore final : public KVStore {
 public:
  FakeStore(FakeServer* server, uint32_t rank, float grad_scale = 1)
      : server_(server), rank_(rank), grad_scale_(grad_scale) {}

  // ---- for tests ----
  // Returns the events "push w 1", "nothing w 1", "pull w 1", "arrived w 1", with key and round or
  // version.
  std::vector<std::string> events() const {
    std::lock_guard<std::mutex> lock(mutex_);
    return events_;
  }
  void Record(const std::string& event) {
    std::lock_guard<std::mutex> lock(mutex_);
    events_.push_back(event);
  }

  // Sets the codec that the store claims to use. Pushes are not compressed.
  void set_codec(const Codec* codec) { codec_ = codec; }

  // Holds pulls of versions later than `up_to` until this is raised. At first all pulls pass.
  void AllowVersions(uint64_t up_to) {
    std::vector<std::function<void()>> free;
    {
      std::lock_guard<std::mutex> lock(mutex_);
      allowed_ = up_to;
      while (!held_.empty() && held_.begin()->first <= up_to) {
        free.push_back(std::move(held_.begin()->second));
        held_.erase(held_.begin());
      }
    }
    for (auto& call : free) call();
  }
  void AllowAll() { AllowVersions(std::numeric_limits<uint64_t>::max()); }

  // Makes pulls of this version and later ones fail.
  void FailPullsFrom(uint64_t version, absl::Status why) {
    fail_from_ = version;
    failure_ = std::move(why);
  }

  // Makes every push fail.
  void FailPushes(absl::Status why) { push_failure_ = std::move(why); }
  void set_type(std::string type) { type_ = std::move(type); }
  void set_measuring(bool measuring) { measuring_ = measuring; }

  // ---- KVStore ----
  absl::Status Init(const std::vector<InitTensor>& tensors) override {
    if (rank_ == 0) {
      for (const InitTensor& tensor : tensors) server_->Init(tensor.key, tensor.value);
    }
    server_->Sum({});
    return absl::OkStatus();
  }
  absl::Status Push(const Key& key, std::span<const float> gradient, int priority) override {
    if (!push_failure_.ok()) return push_failure_;
    std::vector<float> scaled(gradient.begin(), gradient.end());
    for (float& value : scaled) {
      if (!std::isfinite(value)) {
        return absl::InvalidArgumentError(absl::StrCat("push of key ", key.typed_name(), ": NaN"));
      }
      value *= grad_scale_;
    }
    const uint64_t round = NextRound(key, "push");
    priorities_[key.typed_name()] = priority;
    totals_.bytes_pushed += gradient.size_bytes();
    totals_.pushed.elements += gradient.size();
    server_->Push(key, rank_, round, std::move(scaled));
    return absl::OkStatus();
  }
  // Counts rows of one element each.
  absl::Status PushRowSparse(const Key& key, std::span<const int64_t> rows,
                             std::span<const float> values, int priority) override {
    std::vector<float> whole(server_->Read(key, 0).size());
    for (size_t i = 0; i < rows.size(); ++i) whole[static_cast<size_t>(rows[i])] += values[i];
    const absl::Status pushed = Push(key, whole, priority);
    if (pushed.ok()) Record(absl::StrCat("of ", rows.size(), " rows"));
    return pushed;
  }
  absl::Status PushNothing(const Key& key) override {
    server_->Push(key, rank_, NextRound(key, "nothing"), {});
    return absl::OkStatus();
  }
  absl::Status Pull(const Key& key, std::span<float> out, int) override {
    const std::vector<float> weights = server_->Read(key, Rounds(key));
    std::copy(weights.begin(), weights.end(), out.begin());
    totals_.bytes_pulled += out.size_bytes();
    return absl::OkStatus();
  }
  absl::Status PushPull(const Key&, std::span<const float>, std::span<float>, int) override {
    return absl::UnimplementedError("not used by the trainer");
  }
  absl::Status PushLent(const Key& key, std::vector<LentGradient> gradients,
                        int priority) override {
    const absl::Status pushed = Push(key, gradients.at(0).values, priority);
    if (pushed.ok()) on_loan_.push_back(std::move(gradients[0].returned));
    if (!keeps_loans_) ReturnLoans();
    return pushed;
  }
  // Gives gradients back when the test says so, and not at once.
  void KeepLoans() { keeps_loans_ = true; }
  void ReturnLoans(const absl::Status& with = absl::OkStatus()) {
    for (const auto& returned : std::exchange(on_loan_, {})) returned(with);
  }
  void PullTo(const Key& key, LentTarget out, int priority) override {
    PullAsync(key, out.values, priority, std::move(out.done));
  }
  void PullAsync(const Key& key, std::span<float> out, int,
                 std::function<void(absl::Status)> done) override {
    const uint64_t version = Rounds(key);
    // The first weights of all are no event.
    if (version > 0) Record(absl::StrCat("pull ", Name(key), " ", version));
    auto deliver = [this, key, out, version, done = std::move(done)] {
      if (fail_from_.has_value() && version >= *fail_from_) return done(failure_);
      const std::vector<float> weights = server_->Read(key, version);
      std::copy(weights.begin(), weights.end(), out.begin());
      {
        std::lock_guard<std::mutex> lock(mutex_);
        totals_.bytes_pulled += out.size_bytes();
        if (version > 0) events_.push_back(absl::StrCat("arrived ", Name(key), " ", version));
      }
      done(absl::OkStatus());
    };
    server_->WhenAvailable(key, version, [this, version, deliver = std::move(deliver)] {
      {
        std::lock_guard<std::mutex> lock(mutex_);
        if (version > allowed_) {
          held_.emplace(version, deliver);
          return;
        }
      }
      deliver();
    });
  }
  absl::Status SetOptimizer(const wire::OptimizerSpec& spec) override {
    if (rank_ == 0) server_->SetOptimizer(spec);
    return optimizer_refusal_;
  }
  void RefuseOptimizers(const absl::Status& why) { optimizer_refusal_ = why; }
  absl::Status SetHyper(const Key& key, std::optional<Hyper> hyper) override {
    if (hyper->learning_rate < 0) return absl::InvalidArgumentError("learning_rate");
    hypers_.push_back(absl::StrCat(Name(key), " ", hyper->learning_rate, " ", hyper->weight_decay));
    return absl::OkStatus();
  }

  absl::Status SetClipped(const Key& key, bool clipped) override {
    Record(absl::StrCat(clipped ? "clipped " : "not clipped ", Name(key)));
    return absl::OkStatus();
  }
  // The test answers. The server steps as if nothing were clipped.
  void ClipRound(std::span<const Key> keys, double max_norm, ClippedNorm* out,
                 std::function<void(absl::Status)> done) override {
    Record(absl::StrCat("norm of ", keys.size(), " keys up to ", max_norm));
    answer_norm_ = [out, done = std::move(done)](const absl::StatusOr<ClippedNorm>& norm) {
      if (norm.ok()) *out = *norm;
      done(norm.status());
    };
  }
  void AnswerNorm(const absl::StatusOr<ClippedNorm>& norm) {
    std::exchange(answer_norm_, nullptr)(norm);
  }

  // Returns the SetHyper calls in order: key, learning rate, weight decay.
  std::vector<std::string> hypers() const { return hypers_; }
  absl::Status ChangeCompression(std::string_view, CompressedKeys) override {
    return absl::OkStatus();
  }
  absl::Status Barrier() override {
    server_->Sum({});
    return absl::OkStatus();
  }
  absl::StatusOr<std::vector<double>> AllReduceSumFor(std::string_view,
                                                      const std::vector<double>& values) override {
    if (values.size() > kWholeLimits.max_items) {
      return absl::InvalidArgumentError("too many values");
    }
    return server_->Sum(values);
  }
  absl::Status Wait() override {
    Record("wait");
    return absl::OkStatus();
  }
  absl::Status Leave() override { return absl::OkStatus(); }
  absl::Status Close() override { return absl::OkStatus(); }
  uint32_t rank() const override { return rank_; }
  uint32_t num_workers() const override { return server_->workers(); }
  std::string type() const override { return type_; }
  bool measuring() const override { return measuring_; }
  StoreTotals totals() const override {
    std::lock_guard<std::mutex> lock(mutex_);
    return totals_;
  }
  PushTreatment push_treatment() const override {
    return {.grad_scale = grad_scale_, .codec = codec_};
  }
  int priority(const std::string& typed_name) const { return priorities_.at(typed_name); }

 private:
  static std::string Name(const Key& key) { return key.typed_name().substr(2); }
  uint64_t Rounds(const Key& key) {
    std::lock_guard<std::mutex> lock(mutex_);
    return rounds_[key.typed_name()];
  }
  uint64_t NextRound(const Key& key, const char* event) {
    std::lock_guard<std::mutex> lock(mutex_);
    const uint64_t round = ++rounds_[key.typed_name()];
    events_.push_back(absl::StrCat(event, " ", Name(key), " ", round));
    return round;
  }

  FakeServer* const server_;
  const uint32_t rank_;
  const float grad_scale_;
  const Codec* codec_ = nullptr;
  std::string type_ = "dist_sync";
  bool measuring_ = false;
  bool keeps_loans_ = false;
  std::vector<std::function<void(absl::Status)>> on_loan_;
  std::optional<uint64_t> fail_from_;
  absl::Status failure_, push_failure_;
  mutable std::mutex mutex_;
  std::vector<std::string> events_;
  std::map<std::string, uint64_t> rounds_;
  std::map<std::string, int> priorities_;
  std::function<void(const absl::StatusOr<ClippedNorm>&)> answer_norm_;  // null: none is asked for
  std::vector<std::string> hypers_;
  absl::Status optimizer_refusal_;
  std::multimap<uint64_t, std::function<void()>> held_;  // by version
  uint64_t allowed_ = std::numeric_limits<uint64_t>::max();
  StoreTotals totals_;
};

}  // namespace slimps

#endif  // SLIMPS_TESTS_WORKER_TRAINER_FAKE_STORE_H_
