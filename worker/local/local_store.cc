// SPDX-License-Identifier: Apache-2.0
#include "worker/local/local_store.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "compress/codec/catalogue/dictionary.h"
#include "compress/format/format.h"
#include "glog/logging.h"
#include "proto/base/out_of_memory.h"
#include "proto/base/status_macros.h"
#include "proto/learning_rate.h"
#include "worker/combination.h"
#include "worker/tensor/value_check.h"

namespace slimps {
namespace {

// One entry of this thread's stack of running updaters: an updater may push to another store.
struct RunningUpdater {
  const LocalStore* store;
  const RunningUpdater* outer;
};
thread_local const RunningUpdater* innermost = nullptr;

// Copies `from` to `to` with the rounding of `codec`. Copies the values unchanged if the codec
// cannot carry one of them.
void CopyThrough(const Codec& codec, std::span<const float> from, std::span<float> to) {
  std::vector<std::byte> bytes(codec.MaxPayloadBytes(from.size()));
  if (!codec.Encode({.gradient = from}, bytes).ok()) {
    std::copy(from.begin(), from.end(), to.begin());
    return;
  }
  for (size_t first = 0; first < to.size(); first += kBlockElements) {
    Decode(codec.format(), bytes, to.size(), first,
           to.subspan(first, std::min(kBlockElements, to.size() - first)));
  }
}

absl::StatusOr<TensorPlan> PlanOf(const InitTensor& tensor) {
  TensorPlan plan{.key = tensor.key, .info = {}, .elements = 1, .partitions = {}};
  plan.info.set_key(tensor.key.id());
  plan.info.set_name(tensor.key.typed_name());
  plan.info.set_dtype(tensor.dtype);
  plan.info.set_layer(tensor.declared_layer());
  for (const int64_t extent : tensor.shape) {
    const size_t size = static_cast<size_t>(extent);
    const size_t limit = std::numeric_limits<size_t>::max() / sizeof(float);
    if (extent < 0 || (size > 0 && plan.elements > limit / size)) {
      return absl::InvalidArgumentError(absl::StrCat("init of key ", tensor.key.typed_name(),
                                                     ": extent ", extent, " in its shape"));
    }
    plan.info.add_shape(extent);
    plan.elements *= size;
  }
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
      rule_(std::move(replace)) {}

absl::Status LocalStore::FirstError() const {
  MutexLock lock(&mutex_);
  return first_error_;
}

bool LocalStore::IsInUpdater() const {
  for (const RunningUpdater* running = innermost; running != nullptr; running = running->outer) {
    if (running->store == this) return true;
  }
  return false;
}

LocalStore::Tensor& LocalStore::TensorOf(const TensorPlan& plan) const {
  MutexLock lock(&mutex_);
  return *tensors_.at(plan.key.id());
}

absl::StatusOr<LocalStore::InForce> LocalStore::Find(const Key& key, size_t elements,
                                                     const char* what) const {
  if (IsInUpdater()) {
    return absl::FailedPreconditionError(
        absl::StrCat(what, " of key ", key.typed_name(), ": an updater must not call its store"));
  }
  SLIMPS_ASSIGN_OR_RETURN(const TensorPlan* plan, keys_.Find(key));
  SLIMPS_RETURN_IF_ERROR(CheckLength(*plan, elements, what));
  MutexLock lock(&mutex_);
  SLIMPS_RETURN_IF_ERROR(first_error_);
  return InForce{plan, tensors_.at(key.id()).get(), rule_, compressor_};
}

// ---- keys ---------------------------------------------------------------------------------------

absl::Status LocalStore::Init(const std::vector<InitTensor>& tensors) {
  MutexLock lock(&mutex_);
  SLIMPS_RETURN_IF_ERROR(first_error_);
  return OrOutOfMemory([&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return Add(tensors); },
                       "init");
}

absl::Status LocalStore::Add(const std::vector<InitTensor>& tensors) {
  std::unordered_map<KeyId, std::unique_ptr<Tensor>> made;
  std::vector<TensorPlan> plans;
  for (const InitTensor& tensor : tensors) {
    SLIMPS_RETURN_IF_ERROR(keys_.CheckNew(tensor.key));
    if (made.contains(tensor.key.id())) {
      return absl::InvalidArgumentError(
          absl::StrCat("init names key ", tensor.key.typed_name(), " twice"));
    }
    if (tensor.key.is_number() != tensors[0].key.is_number()) {
      return absl::InvalidArgumentError(
          absl::StrCat("key ", tensor.key.typed_name(), " is of another kind than key ",
                       tensors[0].key.typed_name(), "; a store has one kind"));
    }
    SLIMPS_ASSIGN_OR_RETURN(TensorPlan plan, PlanOf(tensor));
    AlignedBuffer weights = AlignedBuffer::OfFloats(plan.elements);
    std::copy(tensor.value.begin(), tensor.value.end(), weights.floats().begin());
    made.emplace(tensor.key.id(), std::make_unique<Tensor>(std::move(weights)));
    plans.push_back(std::move(plan));
  }
  // All keys are added or, if memory runs out, none: merge, the last step, throws nothing.
  tensors_.reserve(tensors_.size() + made.size());
  keys_.Add(std::move(plans));
  tensors_.merge(made);
  return absl::OkStatus();
}

absl::Status LocalStore::Broadcast(const InitTensor& tensor, std::span<float> out) {
  SLIMPS_RETURN_IF_ERROR(Init({tensor}));
  return Pull(tensor.key, out, /*priority=*/0);
}

// ---- push and pull ------------------------------------------------------------------------------

absl::Status LocalStore::Push(const Key& key, std::span<const float> gradient, int priority) {
  return PushSum(key, {&gradient, 1}, priority);
}

absl::Status LocalStore::PushSum(const Key& key, std::span<const std::span<const float>> gradients,
                                 int /*priority*/) {
  SLIMPS_RETURN_IF_ERROR(CheckDevices(key, gradients));
  SLIMPS_ASSIGN_OR_RETURN(const InForce in_force, Find(key, gradients[0].size(), "push"));
  const auto push = [&]() -> absl::Status {
    MutexLock lock(&in_force.tensor->mutex);
    SLIMPS_ASSIGN_OR_RETURN(const std::span<const float> sum, Sum(in_force, gradients));
    Apply(in_force, sum);
    return absl::OkStatus();
  };
  return OrOutOfMemory(push, "push", key.typed_name());
}

absl::StatusOr<std::span<const float>> LocalStore::Sum(
    const InForce& in_force, std::span<const std::span<const float>> gradients) {
  Tensor& tensor = *in_force.tensor;
  const TensorPlan& plan = *in_force.plan;
  const auto sum_memory = [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(tensor.mutex) {
    if (tensor.sum.size() == 0) tensor.sum = AlignedBuffer::OfFloats(plan.elements);
    return tensor.sum.floats();
  };
  if (in_force.compressor != nullptr) {
    const uint64_t round = keys_.PushedRounds(plan.key) + 1;
    const std::span<float> sum = sum_memory();
    PushCounts counts;
    SLIMPS_RETURN_IF_ERROR(in_force.compressor->Sum(plan, round, gradients, sum, &counts));
    MutexLock lock(&tensor.counts_mutex);
    tensor.counts.Add(counts);
    return sum;
  }
  for (const std::span<const float> gradient : gradients) {
    SLIMPS_RETURN_IF_ERROR(CheckFinite(plan.key, gradient, options_.grad_scale, "push"));
  }
  if (gradients.size() == 1 && options_.grad_scale == 1.0f) return gradients[0];
  const std::span<float> sum = sum_memory();
  SumDevices(gradients, sum, options_.grad_scale);
  SLIMPS_RETURN_IF_ERROR(CheckFinite(plan.key, sum, /*scale=*/1, "sum of the push"));
  return sum;
}

void LocalStore::Apply(const InForce& in_force, std::span<const float> sum) {
  Tensor& tensor = *in_force.tensor;
  const LocalRule& rule = *in_force.rule;
  const Key& key = in_force.plan->key;
  const std::span<float> weights = tensor.weights.floats();
  if (rule.updater != nullptr) {
    const RunningUpdater running{.store = this, .outer = innermost};
    innermost = &running;
    const absl::Cleanup done = [&running] { innermost = running.outer; };
    rule.updater(key, sum, weights);
    keys_.CountPush(key);
    return;
  }
  if (tensor.state_of != rule.spec.kind()) {
    tensor.state = LocalUpdaterState();
    tensor.state_of = rule.spec.kind();
  }
  const CountedPush push = keys_.CountPush(key);
  LocalHyper hyper{
      .learning_rate = LearningRateAt(rule.spec.learning_rate(), rule.spec.schedule(), push.round),
      .weight_decay = rule.spec.weight_decay()};
  if (push.hyper.has_value()) hyper = {push.hyper->learning_rate(), push.hyper->weight_decay()};
  if (in_force.compressor != nullptr) {
    // The codec has the momentum that the optimizer lacks: scales the decay to what momentum SGD
    // would make of it (combination.h).
    hyper.weight_decay *= DecayFactor(in_force.compressor->codec(), rule.spec);
  }
  rule.optimizer.Step(weights, sum, hyper, tensor.state, weights);
}

absl::Status LocalStore::PushNothing(const Key& key) {
  SLIMPS_RETURN_IF_ERROR(FirstError());
  SLIMPS_ASSIGN_OR_RETURN(const TensorPlan* plan, keys_.Find(key));
  SLIMPS_ASSIGN_OR_RETURN(const InForce in_force, Find(key, plan->elements, "push"));
  // An updater runs only for pushes.
  if (in_force.rule->updater != nullptr) return absl::OkStatus();
  if (in_force.rule->spec.kind() != wire::OptimizerSpec::NONE) {
    keys_.CountPush(key);  // the only worker contributes nothing, so the optimizer skips the round
    return absl::OkStatus();
  }
  // Without an optimizer the round's sum, which is zero, replaces the value.
  const auto replace = [&] {
    const std::vector<float> zeros(plan->elements);
    MutexLock lock(&in_force.tensor->mutex);
    Apply(in_force, zeros);
    return absl::OkStatus();
  };
  return OrOutOfMemory(replace, "push", key.typed_name());
}

absl::Status LocalStore::Pull(const Key& key, std::span<float> out, int /*priority*/) {
  SLIMPS_ASSIGN_OR_RETURN(const InForce in_force, Find(key, out.size(), "pull"));
  Tensor& tensor = *in_force.tensor;
  MutexLock lock(&tensor.mutex);
  const std::span<const float> weights = std::as_const(tensor.weights).floats();
  switch (in_force.plan->info.dtype()) {
    case wire::FLOAT16:
      CopyThrough(*fp16_, weights, out);
      break;
    case wire::BFLOAT16:
      CopyThrough(*bf16_, weights, out);
      break;
    default:
      std::copy(weights.begin(), weights.end(), out.begin());
  }
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

// ---- what a push does ---------------------------------------------------------------------------

absl::Status LocalStore::SetOptimizer(const wire::OptimizerSpec& spec) {
  SLIMPS_ASSIGN_OR_RETURN(std::shared_ptr<const LocalRule> rule, MakeLocalRule(spec));
  MutexLock lock(&mutex_);
  SLIMPS_RETURN_IF_ERROR(first_error_);
  SLIMPS_RETURN_IF_ERROR(CheckCombination(
      {.codec = compressor_ == nullptr ? nullptr : &compressor_->codec(), .optimizer = spec}));
  // The old updater is destroyed after the lock is released: its destructor may take its owner's
  // locks.
  rule_.swap(rule);
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
  rule_.swap(rule);
  return absl::OkStatus();
}

absl::Status LocalStore::SetGradientCompression(std::string_view codec_spec) {
  return Compress(codec_spec, options_.fixed_threshold_bytes.value_or(0));
}

absl::Status LocalStore::SetGradientCompression(
    const std::map<std::string, std::string>& dictionary) {
  SLIMPS_ASSIGN_OR_RETURN(const DictionaryCodec codec, CodecSpecFromDictionary(dictionary));
  return Compress(codec.spec.ToString(),
                  codec.every_key ? 0 : options_.fixed_threshold_bytes.value_or(0));
}

absl::Status LocalStore::Compress(std::string_view codec_spec, uint64_t threshold_bytes) {
  if (type_ != "device") {
    return absl::UnimplementedError(
        absl::StrCat("gradient compression is not supported for this type of kvstore: ", type_,
                     "; device, dist_sync, dist_async and dist_ssp have it"));
  }
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
  SLIMPS_RETURN_IF_ERROR(CheckCombination({.codec = &made->codec(), .optimizer = rule_->spec}));
  if (!made->codec().Warning().empty()) LOG(WARNING) << made->codec().Warning();
  const bool none = made->codec().spec().name == "none";
  compressor_ = none ? nullptr : std::move(made);
  return absl::OkStatus();
}

// ---- the rest -----------------------------------------------------------------------------------

absl::StatusOr<std::vector<double>> LocalStore::AllReduceSum(const std::vector<double>& values) {
  SLIMPS_RETURN_IF_ERROR(FirstError());
  return values;
}

absl::Status LocalStore::Close() {
  // Destroyed after the lock is released: what an updater owns may own the store.
  std::shared_ptr<const LocalRule> rule;
  MutexLock lock(&mutex_);
  first_error_.Update(absl::FailedPreconditionError("the store was closed"));
  rule_.swap(rule);
  return absl::OkStatus();
}

void LocalStore::Abort(const absl::Status& why) {
  MutexLock lock(&mutex_);
  first_error_.Update(why);
}

StoreTotals LocalStore::totals() const {
  std::vector<Tensor*> tensors;
  {
    MutexLock lock(&mutex_);
    for (const auto& [id, tensor] : tensors_) tensors.push_back(tensor.get());
  }
  StoreTotals totals;
  for (Tensor* tensor : tensors) {
    MutexLock lock(&tensor->counts_mutex);
    totals.pushed.Add(tensor->counts);
  }
  return totals;
}

PushCounts LocalStore::push_counts(const Key& key) const {
  Tensor* tensor = nullptr;
  {
    MutexLock lock(&mutex_);
    const auto found = tensors_.find(key.id());
    if (found == tensors_.end()) return {};
    tensor = found->second.get();
  }
  MutexLock lock(&tensor->counts_mutex);
  return tensor->counts;
}

}  // namespace slimps
