// SPDX-License-Identifier: Apache-2.0
// The catch at the top of every call of a store. If memory runs out, the store has failed: this
// call and every later one return that, and the process lives. It also notes every call
// (worker/activity.h). KVStore::Create wraps every store in it.
//
//   auto store = std::make_unique<GuardedStore>(
//       *DistStore::Create(mode, options, std::move(transport)));
#ifndef SLIMPS_WORKER_STORE_GUARDED_STORE_H_
#define SLIMPS_WORKER_STORE_GUARDED_STORE_H_

#include <memory>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/base/mutex.h"
#include "worker/kvstore.h"

namespace slimps {

// Returns ResourceExhausted, "the store has failed: " and what `error` says. If there is no memory
// for that text, returns DroppedStatus.
absl::Status StoreFailure(const std::bad_alloc& error) noexcept;

// Thread-safe.
class GuardedStore final : public KVStore {
 public:
  explicit GuardedStore(std::unique_ptr<KVStore> store);

  absl::Status Init(const std::vector<InitTensor>& tensors) override;
  absl::Status Push(const Key& key, std::span<const float> gradient, int priority) override;
  absl::Status PushLent(const Key& key, std::vector<LentGradient> gradients, int priority) override;
  absl::Status PushSum(const Key& key, std::span<const std::span<const float>> gradients,
                       int priority) override;
  absl::Status PushNothing(const Key& key) override;
  absl::Status Pull(const Key& key, std::span<float> out, int priority) override;
  absl::Status PushPull(const Key& key, std::span<const float> gradient, std::span<float> out,
                        int priority) override;
  void PullAsync(const Key& key, std::span<float> out, int priority,
                 std::function<void(absl::Status)> done) override;
  void PullTo(const Key& key, LentTarget out, int priority) override;
  void PullOnto(const Key& key, std::span<float> weights, int priority,
                std::function<void(absl::Status)> done) override;
  absl::Status PushRowSparse(const Key& key, std::span<const int64_t> rows,
                             std::span<const float> values, int priority) override;
  absl::Status PullRows(const Key& key, std::span<const int64_t> row_ids,
                        std::vector<int64_t>* rows, std::vector<float>* values,
                        int priority) override;
  absl::Status SetOptimizer(const wire::OptimizerSpec& spec) override;
  absl::Status SetHyper(const Key& key, std::optional<Hyper> hyper) override;
  absl::Status SetClipped(const Key& key, bool clipped) override;
  void ClipRound(std::span<const Key> keys, double max_norm, ClippedNorm* out,
                 std::function<void(absl::Status)> done) override;
  absl::Status SetUpdater(Updater updater) override;
  absl::StatusOr<std::string> SaveOptimizerStates() override;
  absl::Status LoadOptimizerStates(std::string_view content) override;
  absl::Status PullOptimizerStates(std::span<const Key> keys,
                                   std::span<LentOptimizerState> states) override;
  absl::Status PutOptimizerStates(std::span<const Key> keys,
                                  std::span<const LentOptimizerState> states,
                                  absl::Status mine) override;
  absl::StatusOr<std::string> SaveResiduals() override;
  absl::Status LoadResiduals(std::string_view content) override;
  absl::Status Save(const std::string& folder, absl::StatusOr<std::string_view> own_state) override;
  absl::Status AwaitSaved() override;
  absl::StatusOr<LoadedCheckpoint> Load(const std::string& folder) override;
  absl::Status ChangeCompression(std::string_view codec_spec, CompressedKeys keys) override;
  absl::Status SetPolicy(std::string_view policy) override;
  absl::Status Barrier() override;
  absl::StatusOr<std::vector<double>> AllReduceSumFor(std::string_view purpose,
                                                      const std::vector<double>& values) override;
  absl::StatusOr<std::vector<bool>> BroadcastBytes(
      std::span<const std::span<std::byte>> buffers) override;
  absl::Status Wait() override;
  absl::Status Leave() override;
  absl::Status Close() override;
  void Abort(const absl::Status& why) override { store_->Abort(why); }
  uint32_t rank() const override { return store_->rank(); }
  absl::Duration timeout() const override { return store_->timeout(); }
  uint32_t num_workers() const override { return store_->num_workers(); }
  std::string type() const override { return store_->type(); }
  StoreTotals totals() const override { return store_->totals(); }
  PushTreatment push_treatment() const override { return store_->push_treatment(); }
  Devices* devices() override { return store_->devices(); }
  PushCounts push_counts(const Key& key) const override { return store_->push_counts(key); }
  bool measuring() const override { return store_->measuring(); }
  uint64_t former_rounds() const override { return store_->former_rounds(); }
  bool push_may_wait(size_t bytes) const override { return store_->push_may_wait(bytes); }
  std::optional<wire::CodecMap> codec_map() const override { return store_->codec_map(); }
  std::vector<wire::CodecMap> policy_decisions() const override {
    return store_->policy_decisions();
  }
  std::vector<KeyCodec> key_codecs() const override { return store_->key_codecs(); }
  std::string Report(bool details) const override { return store_->Report(details); }
  Activity* activity() override { return activity_; }

 private:
  // Returns what `call` returns or, once the store has failed, its failure. `function` is the
  // caller, whose call is noted.
  template <typename Call>
  auto Guarded(const Call& call, const char* function = __builtin_FUNCTION()) -> decltype(call());
  // Same, for a call that answers by the callback that it is given. Calls `done` whatever `call`
  // throws.
  template <typename Call>
  void Answered(std::function<void(absl::Status)> done, const Call& call,
                const char* function = __builtin_FUNCTION());
  absl::Status Failed() const;
  absl::Status Fail(const std::bad_alloc& error);

  const std::unique_ptr<KVStore> store_;
  Activity* const activity_;  // null: calls are not noted
  mutable Mutex mutex_;
  absl::Status failed_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace slimps

#endif  // SLIMPS_WORKER_STORE_GUARDED_STORE_H_
