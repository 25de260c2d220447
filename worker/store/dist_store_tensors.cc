// SPDX-License-Identifier: Apache-2.0
// DistStore: Init, Push and Pull.
#include <algorithm>
#include <cmath>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/base/clock.h"
#include "proto/base/out_of_memory.h"
#include "proto/base/status_macros.h"
#include "proto/base/trace/trace.h"
#include "worker/pull/pulled_form.h"
#include "worker/store/dist_store.h"
#include "worker/store/store_init.h"
#include "worker/tensor/value_check.h"

namespace slimps {
namespace {

bool IsChange(const std::string& codec) { return PulledFormOf(codec) == PulledForm::kChange; }

}  // namespace

// ---- keys ---------------------------------------------------------------------------------------

absl::Status DistStore::Init(const std::vector<InitTensor>& tensors) {
  SLIMPS_RETURN_IF_ERROR(FirstError());
  std::set<KeyId> seen;
  for (const InitTensor& tensor : tensors) {
    SLIMPS_RETURN_IF_ERROR(keys_.CheckNew(tensor.key));
    if (!seen.insert(tensor.key.id()).second) {
      return absl::InvalidArgumentError(
          absl::StrCat("init names key ", tensor.key.typed_name(), " twice"));
    }
  }
  SLIMPS_ASSIGN_OR_RETURN(DeclaredTensors declared,
                          DeclareTensors(tensors,
                                         {.partition_bytes = options_.partition_bytes,
                                          .num_servers = options_.num_servers,
                                          .timeout = options_.timeout,
                                          .compression = DescribeCompression()},
                                         &membership_, &rpc_));
  WarnOfDifference(declared.differing_compression);
  std::vector<TensorPlan>& plans = declared.plans;
  if (rank() == 0)
    SLIMPS_RETURN_IF_ERROR(SendInitialValues(
        tensors, plans,
        {.combine = plan()->compressor().combine(),
         .hashing = options_.checksums ? PayloadHashing::kXxh3 : PayloadHashing::kOff},
        courier_.get()));
  for (const TensorPlan& plan : plans) staging_.AddKeys(plan.bytes());
  keys_.Add(std::move(plans));
  // No worker goes on before the servers have rank 0's values.
  return membership_.Barrier("kvstore/init", wire::WORKER, options_.timeout);
}

// ---- push and pull ------------------------------------------------------------------------------

namespace {

// Hands a callback's status to the caller that waits for it.
class Awaited final {
 public:
  std::function<void(absl::Status)> Callback() {
    return [this](absl::Status status) {
      MutexLock lock(&mutex_);
      result_ = std::move(status);
      answered_.NotifyAll();
    };
  }
  absl::Status Await() {
    MutexLock lock(&mutex_);
    // The wait ends: every item of a pull is answered within the courier's deadline.
    while (!result_.has_value()) answered_.Wait(&mutex_);
    return *result_;
  }

 private:
  Mutex mutex_;
  CondVar answered_;
  std::optional<absl::Status> result_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace

absl::Status DistStore::Push(const Key& key, std::span<const float> gradient, int priority) {
  SLIMPS_ASSIGN_OR_RETURN(PushJob job, MakePushJob(key, gradient, priority));
  return Submit(std::move(job));
}

absl::StatusOr<PushJob> DistStore::MakePushJob(const Key& key, std::span<const float> gradient,
                                               int priority) {
  SLIMPS_RETURN_IF_ERROR(FirstError());
  SLIMPS_ASSIGN_OR_RETURN(const TensorPlan* tensor, keys_.Find(key));
  SLIMPS_RETURN_IF_ERROR(CheckLength(*tensor, gradient.size(), "push"));
  SLIMPS_ASSIGN_OR_RETURN(GradientBuffers grad_bufs, staging_.Acquire(*tensor, options_.timeout));
  const SteadyTime start = options_.clock->Now();
  SLIMPS_ASSIGN_OR_RETURN(const float largest, CopyGradient(*tensor, gradient, grad_bufs));
  {
    MutexLock lock(&mutex_);
    copy_ += options_.clock->Now() - start;
  }
  PushJob job = CountJob(tensor, priority);
  job.grad_bufs = std::move(grad_bufs);
  job.gradient_bound = largest;
  TraceLog::Global().AddOfThread(TraceStage::kCopy, {key.typed_name(), 0, job.round}, start,
                                 options_.clock->Now());
  return job;
}

PushJob DistStore::CountJob(const TensorPlan* tensor, int priority) {
  CountedPush counted = keys_.CountPush(tensor->key);
  if (counted.hyper.has_value()) {
    counted.hyper->set_weight_decay(DecayFactor(plan()->compressor(), optimizer()) *
                                    counted.hyper->weight_decay());
  }
  return {.tensor = tensor,
          .round = counted.round,
          .priority = PriorityOf(priority),
          .grad_bufs = {},
          .hyper = std::move(counted.hyper)};
}

absl::StatusOr<float> DistStore::CopyGradient(const TensorPlan& tensor,
                                              std::span<const float> gradient,
                                              const GradientBuffers& grad_bufs) {
  float largest = 0;
  for (size_t i = 0; i < grad_bufs.size(); ++i) {
    const PartitionPlan& partition = tensor.partitions[i];
    absl::StatusOr<float> found = 0.0f;
    // The host device copies before it returns, so `found` is set then.
    device_->CopyGradient(tensor.key.id(), gradient.subspan(partition.offset, partition.elements),
                          grad_bufs[i]->floats(),
                          [&found](KeyId, absl::StatusOr<float> of) { found = of; });
    SLIMPS_RETURN_IF_ERROR(found.status());
    if (std::isinf(*found * options_.grad_scale)) {  // looks again, for the element's name
      return CheckFinite(tensor.key, grad_bufs[i]->floats(), options_.grad_scale, "push",
                         partition.offset);
    }
    largest = std::max(largest, *found);
  }
  return largest;
}

absl::Status DistStore::PushNothing(const Key& key) {
  SLIMPS_RETURN_IF_ERROR(FirstError());
  SLIMPS_ASSIGN_OR_RETURN(const TensorPlan* tensor, keys_.Find(key));
  return Submit(CountJob(tensor, /*priority=*/0));
}

absl::Status DistStore::Submit(PushJob job) {
  const TensorPlan& tensor = *job.tensor;
  const absl::Status submitted =
      SayingWhatFor("push", tensor.key.typed_name(), [&] { return push_->Submit(std::move(job)); });
  // The round is already counted. Without this push, that round and all later ones never complete.
  if (!submitted.ok()) Fail(submitted, Cause::kOurs);
  return submitted;
}

absl::Status DistStore::Pull(const Key& key, std::span<float> out, int priority) {
  const TraceSpan span(TraceStage::kWait, {key.typed_name(), 0, 0});
  const SteadyTime start = options_.clock->Now();
  Awaited pulled;
  PullAsync(key, out, priority, pulled.Callback());
  const absl::Status status = FailIfServerIsGone(pulled.Await());
  AddWait(start);
  return status;
}

void DistStore::PullAsync(const Key& key, std::span<float> out, int priority,
                          std::function<void(absl::Status)> done) {
  SubmitPull({.priority = priority, .out = out, .kind = PullKind::kPlain, .done = std::move(done)},
             key);
}

void DistStore::PullOnto(const Key& key, std::span<float> weights, int priority,
                         std::function<void(absl::Status)> done) {
  SubmitPull(
      {.priority = priority, .out = weights, .kind = PullKind::kOnto, .done = std::move(done)},
      key);
}

bool DistStore::NeedsCopy(const TensorPlan& tensor, uint64_t version) const {
  if (mode_ != wire::DIST_SYNC || !IsChange(options_.pull_compression)) return false;
  return IsChange(ChangeCodecFor(tensor, version)) || IsChange(ChangeCodecFor(tensor, version + 1));
}

absl::StatusOr<const TensorPlan*> DistStore::FindForPull(const Key& key, size_t elements) {
  SLIMPS_RETURN_IF_ERROR(FirstError());
  SLIMPS_ASSIGN_OR_RETURN(const TensorPlan* found, keys_.Find(key));
  SLIMPS_RETURN_IF_ERROR(CheckLength(*found, elements, "pull"));
  return found;
}

absl::Status DistStore::AwaitAcknowledged(const TensorPlan& tensor) {
  Awaited acknowledged;
  push_->WhenAcknowledged(tensor, acknowledged.Callback());
  return FailIfServerIsGone(acknowledged.Await());
}

void DistStore::SubmitPull(PullJob job, const Key& key) {
  const absl::StatusOr<const TensorPlan*> tensor = FindForPull(key, job.out.size());
  if (!tensor.ok()) return job.done(tensor.status());
  job.tensor = *tensor;
  job.priority = PriorityOf(job.priority);
  if (mode_ != wire::DIST_SYNC) {
    // Versions do not count this worker's pushes in these modes. An acknowledged push has been
    // applied, so the pull waits for the acknowledgements.
    return push_->WhenAcknowledged(**tensor, pull_->SubmitLater(std::move(job)));
  }
  job.min_version = NewestPushed(key);
  // No round is complete without this worker's push until it leaves, so there is no later version.
  job.is_newest = !left_.load();
  if (job.kind == PullKind::kPlain && NeedsCopy(*job.tensor, job.min_version)) {
    job.kind = PullKind::kThroughCopy;
  }
  pull_->Submit(std::move(job));
}

absl::Status DistStore::PushPull(const Key& key, std::span<const float> gradient,
                                 std::span<float> out, int priority) {
  // Checked before the round is counted: a pull that cannot be must not consume it.
  SLIMPS_RETURN_IF_ERROR(FindForPull(key, out.size()).status());
  SLIMPS_ASSIGN_OR_RETURN(PushJob job, MakePushJob(key, gradient, priority));
  Awaited pulled;
  SteadyTime start;
  const auto send = [&] { return SendTogether(job, out, pulled.Callback(), &start); };
  const absl::StatusOr<bool> sent = SayingWhatFor("push", job.tensor->key.typed_name(), send);
  if (!sent.ok()) {
    Fail(sent.status(), Cause::kOurs);  // as in Submit
    return FirstError();
  }
  if (*sent) {
    const absl::Status status = FailIfServerIsGone(pulled.Await());
    AddWait(start);
    return status;
  }
  SLIMPS_RETURN_IF_ERROR(Submit(std::move(job)));
  return Pull(key, out, priority);
}

absl::StatusOr<bool> DistStore::SendTogether(const PushJob& job, std::span<float> out,
                                             std::function<void(absl::Status)> pulled,
                                             SteadyTime* prepared) {
  const TensorPlan& tensor = *job.tensor;
  // SubmitWithPush takes plain pulls only: no change of the weights, and none that is measured.
  if (mode_ != wire::DIST_SYNC || !options_.coalesce || NeedsCopy(tensor, job.round) ||
      plan()->MeasuresPull(tensor, job.round)) {
    return false;
  }
  SLIMPS_ASSIGN_OR_RETURN(std::optional<OutgoingItem> push, push_->PrepareNow(job));
  if (!push.has_value()) return false;
  *prepared = options_.clock->Now();
  pull_->SubmitWithPush(
      {.tensor = &tensor,
       .min_version = job.round,
       .priority = job.priority,
       .out = out,
       .is_newest = true,  // after Leave the push is refused, and the pull with it
       .done = std::move(pulled)},
      *std::move(push));
  return true;
}

absl::Status DistStore::Broadcast(const InitTensor& tensor, std::span<float> out) {
  SLIMPS_RETURN_IF_ERROR(Init({tensor}));
  return Pull(tensor.key, out, /*priority=*/0);
}

}  // namespace slimps
