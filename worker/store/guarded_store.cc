// SPDX-License-Identifier: Apache-2.0
#include "worker/store/guarded_store.h"

#include "absl/strings/str_cat.h"
#include "proto/base/out_of_memory.h"
#include "worker/activity.h"
#include "worker/courier/called_once.h"

namespace slimps {
namespace {

absl::Status Explain(const KVStore& store, absl::Status status) {
  return store.Explained(std::move(status));
}

template <typename Value>
absl::StatusOr<Value> Explain(const KVStore& store, absl::StatusOr<Value> value) {
  if (!absl::IsDeadlineExceeded(value.status())) return value;
  return store.Explained(value.status());
}

}  // namespace

absl::Status StoreFailure(const std::bad_alloc& error) noexcept {
  try {
    return absl::ResourceExhaustedError(
        absl::StrCat("the store has failed: ", OutOfMemoryStatus(error).message()));
  } catch (const std::bad_alloc&) {
    return DroppedStatus();
  }
}

GuardedStore::GuardedStore(std::unique_ptr<KVStore> store)
    : store_(std::move(store)), activity_(store_->activity()) {
  (void)DroppedStatus();  // makes it while there is memory
}

absl::Status GuardedStore::Failed() const {
  MutexLock lock(&mutex_);
  return failed_;
}

absl::Status GuardedStore::Fail(const std::bad_alloc& error) {
  absl::Status why = StoreFailure(error);
  {
    MutexLock lock(&mutex_);
    if (failed_.ok()) failed_ = why;
    why = failed_;
  }
  store_->Abort(why);
  return why;
}

template <typename Call>
auto GuardedStore::Guarded(const Call& call, const char* function) -> decltype(call()) {
  const Activity::Call noted(activity_, function);
  absl::Status failed = Failed();
  if (!failed.ok()) return failed;
  try {
    return Explain(*store_, call());
  } catch (const std::bad_alloc& error) {
    return Fail(error);
  }
}

template <typename Call>
void GuardedStore::Answered(std::function<void(absl::Status)> done, const Call& call,
                            const char* function) {
  const Activity::Call noted(activity_, function);
  const absl::Status failed = Failed();
  if (!failed.ok()) return done(failed);
  try {
    // If anything here throws, the last copy's destructor calls `done`.
    const CalledOnce<absl::Status> told = std::move(done);
    const CalledOnce<absl::Status> answer = [store = store_.get(), told](absl::Status status) {
      told(Explain(*store, std::move(status)));
    };
    call(answer);
  } catch (const std::bad_alloc& error) {
    (void)Fail(error);
  }
}

absl::Status GuardedStore::Init(const std::vector<InitTensor>& tensors) {
  return Guarded([&] { return store_->Init(tensors); });
}

absl::Status GuardedStore::Push(const Key& key, std::span<const float> gradient, int priority) {
  return Guarded([&] { return store_->Push(key, gradient, priority); });
}

absl::Status GuardedStore::PushLent(const Key& key, std::vector<LentGradient> gradients,
                                    int priority) {
  return Guarded([&] { return store_->PushLent(key, std::move(gradients), priority); });
}

absl::Status GuardedStore::PushSum(const Key& key,
                                   std::span<const std::span<const float>> gradients,
                                   int priority) {
  return Guarded([&] { return store_->PushSum(key, gradients, priority); });
}

absl::Status GuardedStore::PushNothing(const Key& key) {
  return Guarded([&] { return store_->PushNothing(key); });
}

absl::Status GuardedStore::Pull(const Key& key, std::span<float> out, int priority) {
  return Guarded([&] { return store_->Pull(key, out, priority); });
}

absl::Status GuardedStore::PushPull(const Key& key, std::span<const float> gradient,
                                    std::span<float> out, int priority) {
  return Guarded([&] { return store_->PushPull(key, gradient, out, priority); });
}

void GuardedStore::PullAsync(const Key& key, std::span<float> out, int priority,
                             std::function<void(absl::Status)> done) {
  Answered(std::move(done), [&](std::function<void(absl::Status)> answer) {
    store_->PullAsync(key, out, priority, std::move(answer));
  });
}

void GuardedStore::PullTo(const Key& key, LentTarget out, int priority) {
  Answered(std::exchange(out.done, nullptr), [&](std::function<void(absl::Status)> answer) {
    out.done = std::move(answer);
    store_->PullTo(key, std::move(out), priority);
  });
}

void GuardedStore::PullOnto(const Key& key, std::span<float> weights, int priority,
                            std::function<void(absl::Status)> done) {
  Answered(std::move(done), [&](std::function<void(absl::Status)> answer) {
    store_->PullOnto(key, weights, priority, std::move(answer));
  });
}

absl::Status GuardedStore::PushRowSparse(const Key& key, std::span<const int64_t> rows,
                                         std::span<const float> values, int priority) {
  return Guarded([&] { return store_->PushRowSparse(key, rows, values, priority); });
}

absl::Status GuardedStore::PullRows(const Key& key, std::span<const int64_t> row_ids,
                                    std::vector<int64_t>* rows, std::vector<float>* values,
                                    int priority) {
  return Guarded([&] { return store_->PullRows(key, row_ids, rows, values, priority); });
}

absl::Status GuardedStore::SetOptimizer(const wire::OptimizerSpec& spec) {
  return Guarded([&] { return store_->SetOptimizer(spec); });
}

absl::Status GuardedStore::SetHyper(const Key& key, std::optional<Hyper> hyper) {
  return Guarded([&] { return store_->SetHyper(key, hyper); });
}

absl::Status GuardedStore::SetClipped(const Key& key, bool clipped) {
  return Guarded([&] { return store_->SetClipped(key, clipped); });
}

void GuardedStore::ClipRound(std::span<const Key> keys, double max_norm, ClippedNorm* out,
                             std::function<void(absl::Status)> done) {
  Answered(std::move(done), [&](std::function<void(absl::Status)> answer) {
    store_->ClipRound(keys, max_norm, out, std::move(answer));
  });
}

absl::Status GuardedStore::SetUpdater(Updater updater) {
  return Guarded([&] { return store_->SetUpdater(std::move(updater)); });
}

absl::StatusOr<std::string> GuardedStore::SaveOptimizerStates() {
  return Guarded([&] { return store_->SaveOptimizerStates(); });
}

absl::Status GuardedStore::LoadOptimizerStates(std::string_view content) {
  return Guarded([&] { return store_->LoadOptimizerStates(content); });
}

absl::Status GuardedStore::PullOptimizerStates(std::span<const Key> keys,
                                               std::span<LentOptimizerState> states) {
  return Guarded([&] { return store_->PullOptimizerStates(keys, states); });
}

absl::Status GuardedStore::PutOptimizerStates(std::span<const Key> keys,
                                              std::span<const LentOptimizerState> states,
                                              absl::Status mine) {
  return Guarded([&] { return store_->PutOptimizerStates(keys, states, std::move(mine)); });
}

absl::StatusOr<std::string> GuardedStore::SaveResiduals() {
  return Guarded([&] { return store_->SaveResiduals(); });
}

absl::Status GuardedStore::LoadResiduals(std::string_view content) {
  return Guarded([&] { return store_->LoadResiduals(content); });
}

absl::Status GuardedStore::Save(const std::string& folder,
                                absl::StatusOr<std::string_view> own_state) {
  return Guarded([&] { return store_->Save(folder, own_state); });
}

absl::Status GuardedStore::AwaitSaved() {
  return Guarded([&] { return store_->AwaitSaved(); });
}

absl::StatusOr<LoadedCheckpoint> GuardedStore::Load(const std::string& folder) {
  return Guarded([&] { return store_->Load(folder); });
}

absl::Status GuardedStore::ChangeCompression(std::string_view codec_spec, CompressedKeys keys) {
  return Guarded([&] { return store_->ChangeCompression(codec_spec, keys); });
}

absl::Status GuardedStore::SetPolicy(std::string_view policy) {
  return Guarded([&] { return store_->SetPolicy(policy); });
}

absl::Status GuardedStore::Barrier() {
  return Guarded([&] { return store_->Barrier(); });
}

absl::StatusOr<std::vector<double>> GuardedStore::AllReduceSumFor(
    std::string_view purpose, const std::vector<double>& values) {
  return Guarded([&] { return store_->AllReduceSumFor(purpose, values); });
}

absl::StatusOr<std::vector<bool>> GuardedStore::BroadcastBytes(
    std::span<const std::span<std::byte>> buffers) {
  return Guarded([&] { return store_->BroadcastBytes(buffers); });
}

absl::Status GuardedStore::Wait() {
  return Guarded([&] { return store_->Wait(); });
}

absl::Status GuardedStore::Leave() {
  return Guarded([&] { return store_->Leave(); });
}

// Closes a store that has failed too.
absl::Status GuardedStore::Close() {
  const Activity::Call noted(activity_, __func__);
  try {
    return store_->Close();
  } catch (const std::bad_alloc& error) {
    return Fail(error);
  }
}

}  // namespace slimps
