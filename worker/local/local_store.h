// SPDX-License-Identifier: Apache-2.0
// LocalStore: a KVStore inside one process. It holds the weights and the optimizer itself, and
// needs neither scheduler nor server.
//
//   auto store = KVStore::Create("device", options);
//   (*store)->Init({{.key = "w", .shape = {3}, .value = weights}});
//   (*store)->SetUpdater([](const Key&, std::span<const float> gradient, std::span<float> weight) {
//     for (size_t k = 0; k < weight.size(); ++k) weight[k] -= 0.1f * gradient[k];
//   });
//   // The store applies the sum before PushSum returns.
//   (*store)->PushSum("w", {{gradient_of_device_0, gradient_of_device_1}}, 0);
//   (*store)->Pull("w", weights, 0);
//
// The semantics are those of MXNet:
// - Without optimizer and updater, a push replaces the value. Of several pushes between two pulls,
//   the last one counts.
// - The optimizer or updater that was set last applies. An optimizer of the same kind continues
//   with its state. An optimizer of another kind starts from zeros.
// - Steps are bit for bit those of a dist_sync store with one worker.
// - Priorities have no effect.
// - Type "device" compresses gradients per device (device_compressor.h). Type "local" refuses
//   compression.
//
// Thread-safe. Pushes of different keys run in parallel, but are compressed one after another.
// Callbacks run before the call that causes them returns.
#ifndef SLIMPS_WORKER_LOCAL_LOCAL_STORE_H_
#define SLIMPS_WORKER_LOCAL_LOCAL_STORE_H_

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "compress/codec/codec.h"
#include "proto/base/mutex.h"
#include "worker/device/devices.h"
#include "worker/kvstore.h"
#include "worker/local/local_rule.h"
#include "worker/local/local_tensor.h"
#include "worker/tensor/key_table.h"

namespace slimps {

class LocalStore final : public KVStore {
 public:
  // Creates a store of `type` "local" or "device". It reads these options: compression,
  // fixed_threshold_bytes, grad_scale, encode_threads.
  // InvalidArgument: an option that makes sense only where something travels, or an unknown codec.
  // Unimplemented: compression with "local", or a policy that adapts.
  [[nodiscard]] static absl::StatusOr<std::unique_ptr<LocalStore>> Create(
      std::string_view type, const KVStoreOptions& options);

  absl::Status Init(const std::vector<InitTensor>& tensors) override;
  absl::Status Push(const Key& key, std::span<const float> gradient, int priority) override;
  absl::Status PushSum(const Key& key, std::span<const std::span<const float>> gradients,
                       int priority) override;
  absl::Status PushLent(const Key& key, std::vector<LentGradient> gradients, int priority) override;
  absl::Status PushNothing(const Key& key) override;
  absl::Status Pull(const Key& key, std::span<float> out, int priority) override;
  absl::Status PushPull(const Key& key, std::span<const float> gradient, std::span<float> out,
                        int priority) override;
  void PullAsync(const Key& key, std::span<float> out, int priority,
                 std::function<void(absl::Status)> done) override;
  void PullTo(const Key& key, LentTarget out, int priority) override;
  absl::Status PushRowSparse(const Key& key, std::span<const int64_t> rows,
                             std::span<const float> values, int priority) override;
  absl::Status PullRows(const Key& key, std::span<const int64_t> row_ids,
                        std::vector<int64_t>* rows, std::vector<float>* values,
                        int priority) override;
  absl::Status SetOptimizer(const wire::OptimizerSpec& spec) override;
  absl::Status SetHyper(const Key& key, std::optional<Hyper> hyper) override;
  absl::Status SetUpdater(Updater updater) override;
  absl::StatusOr<std::string> SaveOptimizerStates() override;
  absl::Status LoadOptimizerStates(std::string_view content) override;
  absl::Status ChangeCompression(std::string_view codec_spec, CompressedKeys keys) override;
  absl::Status Barrier() override { return FirstError(); }
  absl::StatusOr<std::vector<double>> AllReduceSumFor(std::string_view purpose,
                                                      const std::vector<double>& values) override;
  absl::Status Wait() override { return FirstError(); }
  absl::Status Leave() override { return FirstError(); }
  absl::Status Close() override;
  void Abort(const absl::Status& why) override;
  uint32_t rank() const override { return 0; }
  absl::Duration timeout() const override {
    return options_.timeout == absl::ZeroDuration() ? KVStore::timeout() : options_.timeout;
  }
  uint32_t num_workers() const override { return 1; }
  std::string type() const override { return type_; }
  StoreTotals totals() const override;
  PushCounts push_counts(const Key& key) const override;
  Devices* devices() override { return &devices_; }

 private:
  // The tensor that one call works with, and what applies to it.
  struct Found {
    LocalTensor* tensor = nullptr;
    PushInForce in_force;
  };

  LocalStore(std::string_view type, const KVStoreOptions& options,
             std::shared_ptr<const LocalRule> replace);
  absl::Status FirstError() const;
  // Returns the state that a call on `key` works with.
  // FailedPrecondition: an updater called its own store.
  // NotFound: the store has no such key.
  // InvalidArgument: the tensor does not have `elements` elements.
  absl::StatusOr<Found> Find(const Key& key, size_t elements, const char* what) const;
  absl::Status PullToGpu(const Key& key, const LentTarget& out, int priority);
  absl::Status Add(const std::vector<InitTensor>& tensors) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Returns the rule of the optimizer that applies.
  // FailedPrecondition: an updater is set, or no optimizer, or an updater called its own store.
  absl::StatusOr<std::shared_ptr<const LocalRule>> OptimizerInForce(const char* what) const;
  std::vector<LocalTensor*> TensorsInNameOrder() const;

  const std::string type_;
  const KVStoreOptions options_;
  const std::unique_ptr<const Codec> fp16_, bf16_;  // for values pulled in half precision
  KeyTable keys_;
  Devices devices_;

  mutable Mutex mutex_;  // never held together with a tensor's mutex
  absl::Status first_error_ ABSL_GUARDED_BY(mutex_);
  PushInForce in_force_ ABSL_GUARDED_BY(mutex_);
  std::unordered_map<KeyId, std::unique_ptr<LocalTensor>> tensors_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace slimps

#endif  // SLIMPS_WORKER_LOCAL_LOCAL_STORE_H_
