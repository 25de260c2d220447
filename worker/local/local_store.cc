// SPDX-License-Identifier: Apache-2.0
#include "worker/local/local_store.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "glog/logging.h"
#include "proto/base/awaited.h"
#include "proto/base/buffer.h"
#include "proto/base/out_of_memory.h"
#include "proto/base/status_copy.h"
#include "proto/base/status_macros.h"
#include "worker/combination.h"
#include "worker/device/cuda/cuda_device.h"
#include "worker/device/host_values.h"
#include "worker/local/local_states.h"
#include "worker/local/running_updater.h"
#include "worker/push/device_compressor.h"
#include "worker/tensor/host_tensors.h"
#include "worker/tensor/init_tensor.h"
#include "worker/tensor/row_sparse.h"
#include "worker/tensor/value_check.h"

namespace slimps {
namespace {

constexpr char kSaving[] = "saving optimizer states";
constexpr char kLoading[] = "loading optimizer states";

absl::StatusOr<TensorPlan> PlanOf(const InitTensor& tensor) {
  TensorPlan plan{.key = tensor.key, .info = {}, .elements = 1, .partitions = {}};
  SLIMPS_ASSIGN_OR_RETURN(plan.info, DeclarationOf(tensor));
  for (const int64_t extent : tensor.shape) plan.elements *= static_cast<size_t>(extent);
  SLIMPS_RETURN_IF_ERROR(CheckLength(plan, tensor.value.size(), "initial value"));
  SLIMPS_RETURN_IF_ERROR(CheckFinite(plan.key, tensor.value, /*scale=*/1, "initial value"));
  return plan;
}

}  // namespace

absl::StatusOr<std::unique_ptr<LocalStore>> LocalStore::Create(std::string_view type,
                                                               const KVStoreOptions& options) {
  if (options.pull_compression != "none" || options.remeasure_every != 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "a ", std::string(type), " store with pull_compression=", options.pull_compression,
        " and remeasure_every=", options.remeasure_every,
        ": expected none and 0; nothing travels whose size or time could be gained"));
  }
  SLIMPS_ASSIGN_OR_RETURN(std::shared_ptr<const LocalRule> replace, MakeLocalRule({}));
  std::unique_ptr<LocalStore> store(new LocalStore(type, options, std::move(replace)));
  SLIMPS_RETURN_IF_ERROR(store->SetPolicy(options.policy));
  if (options.compression != "none") {
    SLIMPS_RETURN_IF_ERROR(store->SetGradientCompression(options.compression));
  }
  return store;
}

LocalStore::LocalStore(std::string_view type, const KVStoreOptions& options,
                       std::shared_ptr<const LocalRule> replace)
    : type_(type),
      options_(options),
      fp16_(MakeCodec(CodecSpec{.name = "fp16"}).value()),
      bf16_(MakeCodec(CodecSpec{.name = "bf16"}).value()),
      devices_(MakeHostDevice(), GpusOf(options.cuda_driver)),
      in_force_{.rule = std::move(replace), .compressor = nullptr} {}

absl::Status LocalStore::FirstError() const {
  MutexLock lock(&mutex_);
  return first_error_;
}

absl::StatusOr<LocalStore::Found> LocalStore::Find(const Key& key, size_t elements,
                                                   const char* what) const {
  if (RunningUpdater::IsOf(this)) {
    return absl::FailedPreconditionError(
        absl::StrCat(what, " of key ", key.typed_name(), ": an updater must not call its store"));
  }
  SLIMPS_ASSIGN_OR_RETURN(const TensorPlan* plan, keys_.Find(key));
  SLIMPS_RETURN_IF_ERROR(CheckLength(*plan, elements, what));
  MutexLock lock(&mutex_);
  SLIMPS_RETURN_IF_ERROR(first_error_);
  return Found{tensors_.at(key.id()).get(), in_force_};
}

// ---- keys ---------------------------------------------------------------------------------------

absl::Status LocalStore::Init(const std::vector<InitTensor>& tensors) {
  SLIMPS_RETURN_IF_ERROR(FirstError());
  const auto init = [&]() -> absl::Status {
    SLIMPS_ASSIGN_OR_RETURN(const HostTensors on_host, HostTensors::Of(&devices_, tensors));
    MutexLock lock(&mutex_);
    SLIMPS_RETURN_IF_ERROR(first_error_);
    return Add(on_host.all());
  };
  return OrOutOfMemory(init, "init");
}

absl::Status LocalStore::Add(const std::vector<InitTensor>& tensors) {
  std::unordered_map<KeyId, std::unique_ptr<LocalTensor>> made;
  std::vector<TensorPlan> plans;
  SLIMPS_RETURN_IF_ERROR(keys_.CheckNew(tensors));
  for (const InitTensor& tensor : tensors) {
    SLIMPS_ASSIGN_OR_RETURN(TensorPlan plan, PlanOf(tensor));
    AlignedBuffer weights = AlignedBuffer::OfFloats(plan.elements);
    std::copy(tensor.value.begin(), tensor.value.end(), weights.floats().begin());
    made.emplace(tensor.key.id(),
                 std::make_unique<LocalTensor>(plan, std::move(weights), this, &keys_));
    plans.push_back(std::move(plan));
  }
  // All keys are added or, if memory runs out, none: merge, the last step, throws nothing.
  tensors_.reserve(tensors_.size() + made.size());
  keys_.Add(std::move(plans));
  tensors_.merge(made);
  return absl::OkStatus();
}

// ---- push and pull ------------------------------------------------------------------------------

absl::Status LocalStore::Push(const Key& key, std::span<const float> gradient, int priority) {
  return PushSum(key, {&gradient, 1}, priority);
}

absl::Status LocalStore::PushSum(const Key& key, std::span<const std::span<const float>> gradients,
                                 int /*priority*/) {
  SLIMPS_RETURN_IF_ERROR(CheckDevices(key, gradients));
  SLIMPS_ASSIGN_OR_RETURN(const Found found, Find(key, gradients[0].size(), "push"));
  const auto push = [&] {
    devices_.NoteRound(keys_.PushedRounds(key));
    return found.tensor->Push(found.in_force, gradients, options_.grad_scale);
  };
  return OrOutOfMemory(push, "push", key.typed_name());
}

absl::Status LocalStore::PushLent(const Key& key, std::vector<LentGradient> gradients,
                                  int priority) {
  std::vector<HostValues> on_host;
  std::vector<std::span<const float>> values;
  for (const LentGradient& lent : gradients) {
    absl::StatusOr<HostValues> one = HostValues::Of(&devices_, lent.values, lent.place);
    if (!one.ok()) return Prefixed(one.status(), absl::StrCat("push of key ", key.typed_name()));
    values.push_back(one->span());
    on_host.push_back(*std::move(one));
  }
  SLIMPS_RETURN_IF_ERROR(PushSum(key, values, priority));
  for (const LentGradient& lent : gradients) {
    if (lent.returned) lent.returned(absl::OkStatus());
  }
  return absl::OkStatus();
}

absl::Status LocalStore::PushNothing(const Key& key) {
  SLIMPS_RETURN_IF_ERROR(FirstError());
  SLIMPS_ASSIGN_OR_RETURN(const TensorPlan* plan, keys_.Find(key));
  SLIMPS_ASSIGN_OR_RETURN(const Found found, Find(key, plan->elements, "push"));
  const LocalRule& rule = *found.in_force.rule;
  // An updater runs only for pushes.
  if (rule.updater != nullptr) return absl::OkStatus();
  if (rule.spec.kind() != wire::OptimizerSpec::NONE) {
    keys_.CountPush(key);  // the only worker contributes nothing, so the optimizer skips the round
    return absl::OkStatus();
  }
  // Without an optimizer the round's sum, which is zero, replaces the value.
  const auto replace = [&] {
    found.tensor->Apply(found.in_force, std::vector<float>(plan->elements));
    return absl::OkStatus();
  };
  return OrOutOfMemory(replace, "push", key.typed_name());
}

absl::Status LocalStore::PushRowSparse(const Key& key, std::span<const int64_t> rows,
                                       std::span<const float> values, int /*priority*/) {
  SLIMPS_RETURN_IF_ERROR(FirstError());
  SLIMPS_ASSIGN_OR_RETURN(const TensorPlan* plan, keys_.Find(key));
  SLIMPS_ASSIGN_OR_RETURN(const Found found, Find(key, plan->elements, "push of rows"));
  if (found.in_force.compressor != nullptr) {
    return absl::FailedPreconditionError(absl::StrCat(
        "push of rows of key ", key.typed_name(), ": expected gradient compression none, got ",
        found.in_force.compressor->codec().spec().ToString(),
        ", whose residuals belong to whole tensors"));
  }
  const auto push = [&]() -> absl::Status {
    SLIMPS_ASSIGN_OR_RETURN(const SummedRows sums,
                            SumByRow(*plan, rows, values, options_.grad_scale));
    found.tensor->ApplyRows(found.in_force, sums);
    return absl::OkStatus();
  };
  return OrOutOfMemory(push, "push of rows", key.typed_name());
}

absl::Status LocalStore::Pull(const Key& key, std::span<float> out, int /*priority*/) {
  SLIMPS_ASSIGN_OR_RETURN(const Found found, Find(key, out.size(), "pull"));
  const wire::DType dtype = found.tensor->plan().info.dtype();
  found.tensor->Pull(dtype == wire::FLOAT16    ? fp16_.get()
                     : dtype == wire::BFLOAT16 ? bf16_.get()
                                               : nullptr,
                     out);
  return absl::OkStatus();
}

absl::Status LocalStore::PushPull(const Key& key, std::span<const float> gradient,
                                  std::span<float> out, int priority) {
  // Checks the pull first: a wrong length must not cost a push.
  SLIMPS_RETURN_IF_ERROR(Find(key, out.size(), "pull").status());
  SLIMPS_RETURN_IF_ERROR(Push(key, gradient, priority));
  return Pull(key, out, priority);
}

void LocalStore::PullAsync(const Key& key, std::span<float> out, int priority,
                           std::function<void(absl::Status)> done) {
  done(Pull(key, out, priority));
}

void LocalStore::PullTo(const Key& key, LentTarget out, int priority) {
  if (out.place.on_host()) return out.done(Pull(key, out.values, priority));
  out.done(Prefixed(PullToGpu(key, out, priority), absl::StrCat("pull of key ", key.typed_name())));
}

absl::Status LocalStore::PullToGpu(const Key& key, const LentTarget& out, int priority) {
  SLIMPS_ASSIGN_OR_RETURN(Device* const device, devices_.Find(out.values, out.place));
  SLIMPS_ASSIGN_OR_RETURN(const std::unique_ptr<HostBuffer> pulled,
                          device->AllocateHost(out.values.size()));
  SLIMPS_RETURN_IF_ERROR(Pull(key, pulled->floats(), priority));
  Awaited copied;
  device->CopyToDevice(/*key=*/0, pulled->floats(), out.values, out.place.stream,
                       [done = copied.Callback()](KeyId, absl::Status status) { done(status); });
  return copied.Await();
}

absl::Status LocalStore::PullRows(const Key& key, std::span<const int64_t> row_ids,
                                  std::vector<int64_t>* rows, std::vector<float>* values,
                                  int priority) {
  SLIMPS_RETURN_IF_ERROR(FirstError());
  SLIMPS_ASSIGN_OR_RETURN(const TensorPlan* plan, keys_.Find(key));
  const auto pull = [&]() -> absl::Status {
    SLIMPS_ASSIGN_OR_RETURN(std::vector<int64_t> unique, UniqueRows(*plan, row_ids));
    std::vector<float> whole(plan->elements);
    SLIMPS_RETURN_IF_ERROR(Pull(key, whole, priority));
    const size_t row_elements = RowElements(*plan);
    std::vector<float> found;
    found.reserve(unique.size() * row_elements);
    for (const int64_t row : unique) {
      const auto at = whole.begin() + row * static_cast<std::ptrdiff_t>(row_elements);
      found.insert(found.end(), at, at + static_cast<std::ptrdiff_t>(row_elements));
    }
    *rows = std::move(unique);
    *values = std::move(found);
    return absl::OkStatus();
  };
  return OrOutOfMemory(pull, "pull of rows", key.typed_name());
}

// ---- what a push does ---------------------------------------------------------------------------

absl::Status LocalStore::SetOptimizer(const wire::OptimizerSpec& spec) {
  SLIMPS_ASSIGN_OR_RETURN(std::shared_ptr<const LocalRule> rule, MakeLocalRule(spec));
  MutexLock lock(&mutex_);
  SLIMPS_RETURN_IF_ERROR(first_error_);
  SLIMPS_RETURN_IF_ERROR(CheckCombination(
      {.codec = in_force_.compressor == nullptr ? nullptr : &in_force_.compressor->codec(),
       .optimizer = spec}));
  // The old updater is destroyed after the lock is released: its destructor may take its owner's
  // locks.
  in_force_.rule.swap(rule);
  return absl::OkStatus();
}

absl::Status LocalStore::SetHyper(const Key& key, std::optional<Hyper> hyper) {
  SLIMPS_RETURN_IF_ERROR(FirstError());
  return keys_.SetHyper(key, hyper);
}

absl::Status LocalStore::SetUpdater(Updater updater) {
  SLIMPS_ASSIGN_OR_RETURN(std::shared_ptr<const LocalRule> rule,
                          MakeLocalRule({}, std::move(updater)));
  MutexLock lock(&mutex_);
  SLIMPS_RETURN_IF_ERROR(first_error_);
  in_force_.rule.swap(rule);
  return absl::OkStatus();
}

absl::Status LocalStore::ChangeCompression(std::string_view codec_spec, CompressedKeys keys) {
  if (type_ != "device") {
    return absl::UnimplementedError(
        absl::StrCat("gradient compression is not supported for this type of kvstore: ", type_,
                     "; device, dist_sync, dist_async and dist_ssp have it"));
  }
  const uint64_t threshold_bytes =
      keys == CompressedKeys::kAll ? 0 : options_.fixed_threshold_bytes.value_or(0);
  SLIMPS_ASSIGN_OR_RETURN(
      std::unique_ptr<DeviceCompressor> made,
      DeviceCompressor::Create(codec_spec, {.threshold_bytes = threshold_bytes,
                                            .grad_scale = options_.grad_scale,
                                            .encode_threads = options_.encode_threads}));
  MutexLock lock(&mutex_);
  SLIMPS_RETURN_IF_ERROR(first_error_);
  if (keys_.MaxPushedRounds() > 0) {
    return absl::FailedPreconditionError("gradient compression must be set before the first push");
  }
  SLIMPS_RETURN_IF_ERROR(
      CheckCombination({.codec = &made->codec(), .optimizer = in_force_.rule->spec}));
  if (!made->codec().Warning().empty()) LOG(WARNING) << made->codec().Warning();
  const bool none = made->codec().spec().name == "none";
  in_force_.compressor = none ? nullptr : std::move(made);
  return absl::OkStatus();
}

// ---- the optimizer's state ----------------------------------------------------------------------

absl::StatusOr<std::shared_ptr<const LocalRule>> LocalStore::OptimizerInForce(
    const char* what) const {
  if (RunningUpdater::IsOf(this)) {
    return absl::FailedPreconditionError(
        absl::StrCat(what, ": an updater must not call its store"));
  }
  MutexLock lock(&mutex_);
  SLIMPS_RETURN_IF_ERROR(first_error_);
  const LocalRule& rule = *in_force_.rule;
  if (rule.spec.kind() == wire::OptimizerSpec::NONE) {
    return absl::FailedPreconditionError(
        absl::StrCat(what, ": expected an optimizer, got ",
                     rule.updater != nullptr ? "an updater, whose state is its own" : "none"));
  }
  return in_force_.rule;
}

std::vector<LocalTensor*> LocalStore::TensorsInNameOrder() const {
  const std::vector<const TensorPlan*> plans = keys_.InNameOrder();
  std::vector<LocalTensor*> tensors;
  MutexLock lock(&mutex_);
  for (const TensorPlan* plan : plans) tensors.push_back(tensors_.at(plan->key.id()).get());
  return tensors;
}

absl::StatusOr<std::string> LocalStore::SaveOptimizerStates() {
  SLIMPS_ASSIGN_OR_RETURN(const std::shared_ptr<const LocalRule> rule, OptimizerInForce(kSaving));
  const auto save = [&]() -> absl::StatusOr<std::string> {
    return BuildLocalStates(*rule, TensorsInNameOrder());
  };
  return OrOutOfMemory(save, kSaving);
}

absl::Status LocalStore::LoadOptimizerStates(std::string_view content) {
  SLIMPS_ASSIGN_OR_RETURN(const std::shared_ptr<const LocalRule> rule, OptimizerInForce(kLoading));
  const std::vector<LocalTensor*> tensors = TensorsInNameOrder();
  const auto load = [&] { return LoadLocalStates(content, *rule, tensors); };
  return OrOutOfMemory(load, kLoading);
}

// ---- the rest -----------------------------------------------------------------------------------

absl::StatusOr<std::vector<double>> LocalStore::AllReduceSumFor(std::string_view /*purpose*/,
                                                                const std::vector<double>& values) {
  SLIMPS_RETURN_IF_ERROR(FirstError());
  return values;
}

absl::Status LocalStore::Close() {
  // Destroyed after the lock is released: what an updater owns may own the store.
  std::shared_ptr<const LocalRule> rule;
  MutexLock lock(&mutex_);
  first_error_.Update(absl::FailedPreconditionError("the store was closed"));
  in_force_.rule.swap(rule);
  return absl::OkStatus();
}

void LocalStore::Abort(const absl::Status& why) {
  MutexLock lock(&mutex_);
  first_error_.Update(why);
}

StoreTotals LocalStore::totals() const {
  std::vector<const LocalTensor*> tensors;
  {
    MutexLock lock(&mutex_);
    for (const auto& [id, tensor] : tensors_) tensors.push_back(tensor.get());
  }
  StoreTotals totals;
  for (const LocalTensor* tensor : tensors) totals.pushed.Add(tensor->counts());
  return totals;
}

PushCounts LocalStore::push_counts(const Key& key) const {
  const LocalTensor* tensor = nullptr;
  {
    MutexLock lock(&mutex_);
    const auto found = tensors_.find(key.id());
    if (found == tensors_.end()) return {};
    tensor = found->second.get();
  }
  return tensor->counts();
}

}  // namespace slimps
