// SPDX-License-Identifier: Apache-2.0
#include "worker/store/tensor_traffic.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/base/awaited.h"
#include "proto/base/buffer.h"
#include "proto/base/out_of_memory.h"
#include "proto/base/simulation/mutant.h"
#include "proto/base/status_copy.h"
#include "proto/base/status_macros.h"
#include "proto/base/trace/trace.h"
#include "worker/combination.h"
#include "worker/device/cuda/cuda_device.h"
#include "worker/store/auxiliary_tensors.h"
#include "worker/store/traffic_options.h"
#include "worker/tensor/value_check.h"

namespace slimps {
TensorTraffic::TensorTraffic(wire::StoreMode mode, const KVStoreOptions& options, KeyTable* keys,
                             WorkerNode* node, CodecChoice* codecs)
    : mode_(mode),
      options_(options),
      keys_(keys),
      node_(node),
      codecs_(codecs),
      devices_(MakeHostDevice(), GpusOf(options.cuda_driver)),
      staging_(&devices_, options.staging_bytes),
      pull_(node->courier(), MakePullOptions(options, node, codecs)),
      push_(node->courier(), codecs->plan(), MakePushOptions(options, node, codecs, &pull_)),
      phases_(node->courier(), &push_, MakePhasesOptions(options, node)) {}

TensorTraffic::~TensorTraffic() {
  // The threads of copies use the stages below.
  Fail(absl::CancelledError("the store was closed"));
  arriving_.AwaitEnd();
}

void TensorTraffic::Fail(const absl::Status& why) {
  staging_.Fail(why);
  arriving_.Fail(why);
  phases_.Fail(why);
  push_.Fail(why);
}

absl::Status TensorTraffic::Drain() {
  const SteadyTime start = options_.clock->Now();
  absl::Status drained = arriving_.AwaitAll(options_.timeout);
  if (drained.ok()) drained = phases_.Drain(options_.timeout);
  if (drained.ok()) drained = push_.Drain(options_.timeout);
  AddWait(start);
  return drained;
}

absl::Status TensorTraffic::UseStates(
    const std::function<absl::Status(StateStore&, LevelProbe&)>& use) {
  SLIMPS_RETURN_IF_ERROR(arriving_.AwaitAll(options_.timeout));
  return phases_.WhileIdle(options_.timeout, [&] { return push_.UseStates(use); });
}

absl::Status TensorTraffic::Wait() {
  SLIMPS_RETURN_IF_ERROR(node_->CheckOpen());
  return Drain();
}

absl::Status TensorTraffic::Leave() {
  SLIMPS_RETURN_IF_ERROR(Wait());
  left_.store(true);
  push_.FinishProfiling();
  return absl::OkStatus();
}

absl::Status TensorTraffic::Finish() {
  SLIMPS_RETURN_IF_ERROR(node_->FirstError());
  SLIMPS_RETURN_IF_ERROR(Drain());
  push_.FinishProfiling();
  return absl::OkStatus();
}

StoreTotals TensorTraffic::totals() const {
  const PushTotals pushed = push_.totals();
  const PullTotals pulled = pull_.totals();
  const PhasedPushes::Totals phases = phases_.totals();
  MutexLock lock(&mutex_);
  return {.pushed = pushed.prepared,
          .bytes_pushed = pushed.payload_bytes + phases.exchanged.bytes_pushed,
          .bytes_pulled = pulled.payload_bytes + phases.exchanged.bytes_pulled,
          .changes_pulled = pulled.changes,
          .copy = copy_,
          .encode = pushed.encode + phases.encode,
          .send = pushed.send,
          .wait = wait_,
          .decode = pulled.decode};
}

void TensorTraffic::AddWait(SteadyTime since) {
  MutexLock lock(&mutex_);
  wait_ += options_.clock->Now() - since;
}

// ---- pushes -------------------------------------------------------------------------------------

absl::Status TensorTraffic::Push(const Key& key, std::span<const float> gradient, int priority) {
  SLIMPS_ASSIGN_OR_RETURN(PushJob job, MakePushJob(key, gradient, priority));
  return Submit(std::move(job));
}

absl::StatusOr<const TensorPlan*> TensorTraffic::FindForPush(const Key& key, size_t elements) {
  SLIMPS_RETURN_IF_ERROR(node_->CheckOpen());
  SLIMPS_ASSIGN_OR_RETURN(const TensorPlan* tensor, keys_->Find(key));
  SLIMPS_RETURN_IF_ERROR(CheckLength(*tensor, elements, "push"));
  if (checked_codec_.load()) return tensor;
  SLIMPS_RETURN_IF_ERROR(codecs_->CheckTakesSome());
  checked_codec_.store(true);
  return tensor;
}

absl::StatusOr<PushJob> TensorTraffic::MakePushJob(const Key& key, std::span<const float> gradient,
                                                   int priority) {
  SLIMPS_ASSIGN_OR_RETURN(const TensorPlan* tensor, FindForPush(key, gradient.size()));
  SLIMPS_ASSIGN_OR_RETURN(GradientBuffers grad_bufs,
                          staging_.Acquire(*tensor, devices_.host(), options_.timeout));
  const SteadyTime start = options_.clock->Now();
  SLIMPS_ASSIGN_OR_RETURN(const float largest, CopyGradient(*tensor, gradient, grad_bufs));
  SLIMPS_ASSIGN_OR_RETURN(PushJob job, CountJob(tensor, priority));
  NoteCopied(job, start);
  job.grad_bufs = std::move(grad_bufs);
  job.gradient_bound = largest;
  return job;
}

void TensorTraffic::NoteCopied(const PushJob& job, SteadyTime start) {
  const TensorPlan& tensor = *job.tensor;
  const SteadyTime end = options_.clock->Now();
  TraceLog::Global().AddOfThread(
      TraceStage::kCopy, {tensor.key.typed_name(), 0, job.round, tensor.elements}, start, end);
  MutexLock lock(&mutex_);
  copy_ += end - start;
}

absl::StatusOr<PushJob> TensorTraffic::CountJob(const TensorPlan* tensor, int priority) {
  // Rounds of one key go on in their order.
  SLIMPS_RETURN_IF_ERROR(arriving_.Await(*tensor, options_.timeout));
  node_->NotePush();
  CountedPush counted = keys_->CountPush(tensor->key);
  devices_.NoteRound(counted.round);
  if (counted.hyper.has_value()) {
    counted.hyper->set_weight_decay(
        DecayFactor(codecs_->plan()->compressor(), codecs_->optimizer()) *
        counted.hyper->weight_decay());
  }
  return PushJob{.tensor = tensor,
                 .round = counted.round,
                 .priority = PriorityOf(priority),
                 .grad_bufs = {},
                 .hyper = std::move(counted.hyper),
                 .clipped = counted.clipped};
}

bool TensorTraffic::MayPush(const TensorPlan& tensor, float largest) const {
  if (!std::isinf(largest * options_.grad_scale)) return true;
  // In phases all workers would have to send raw alike, and they do not know of one another.
  return options_.pass_non_finite && !phases_.Has(tensor);
}

absl::StatusOr<float> TensorTraffic::CopyGradient(const TensorPlan& tensor,
                                                  std::span<const float> gradient,
                                                  const GradientBuffers& grad_bufs) {
  float largest = 0;
  for (size_t i = 0; i < grad_bufs.size(); ++i) {
    const PartitionPlan& partition = tensor.partitions[i];
    absl::StatusOr<float> found = 0.0f;
    // The host device copies before it returns, so `found` is set then.
    devices_.host()->CopyGradient(
        tensor.key.id(), gradient.subspan(partition.offset, partition.elements), Place(),
        grad_bufs[i]->floats(), [&found](KeyId, absl::StatusOr<float> of) { found = of; });
    SLIMPS_RETURN_IF_ERROR(found.status());
    if (!MayPush(tensor, *found)) {
      return CheckArrived(tensor, i, grad_bufs[i]->floats(), "nothing was sent");
    }
    largest = std::max(largest, *found);
  }
  return largest;
}

absl::Status TensorTraffic::CheckArrived(const TensorPlan& tensor, size_t partition,
                                         std::span<const float> values, const char* outcome) {
  SLIMPS_RETURN_IF_ERROR(CheckFinite(tensor.key, values, options_.grad_scale, "push",
                                     tensor.partitions[partition].offset, outcome));
  return absl::InternalError(absl::StrCat("push of key ", tensor.key.typed_name(),
                                          ": a value was not finite, and is now"));
}

absl::Status TensorTraffic::PushNothing(const Key& key) {
  SLIMPS_RETURN_IF_ERROR(node_->CheckOpen());
  SLIMPS_ASSIGN_OR_RETURN(const TensorPlan* tensor, keys_->Find(key));
  SLIMPS_ASSIGN_OR_RETURN(PushJob job, CountJob(tensor, /*priority=*/0));
  return Submit(std::move(job));
}

absl::Status TensorTraffic::PushRows(const TensorPlan& tensor,
                                     std::shared_ptr<const std::vector<ReadyPayload>> payloads,
                                     int priority) {
  SLIMPS_ASSIGN_OR_RETURN(PushJob job, CountJob(&tensor, priority));
  job.ready = std::move(payloads);
  return Submit(std::move(job));
}

absl::Status TensorTraffic::Submit(PushJob job) {
  const TensorPlan& tensor = *job.tensor;
  const absl::Status submitted =
      SayingWhatFor("push", tensor.key.typed_name(), [&] { return Queue(std::move(job)); });
  // The round is already counted. Without this push, that round and all later ones never complete.
  if (!submitted.ok()) node_->Fail(submitted, WorkerNode::Cause::kOurs);
  return submitted;
}

absl::Status TensorTraffic::Queue(PushJob job) {
  return phases_.Has(*job.tensor) ? phases_.Submit(std::move(job)) : push_.Submit(std::move(job));
}

// ---- pulls --------------------------------------------------------------------------------------

absl::Status TensorTraffic::Pull(const Key& key, std::span<float> out, int priority) {
  const TraceSpan span(TraceStage::kWait, {key.typed_name(), 0, 0});
  const SteadyTime start = options_.clock->Now();
  Awaited pulled;
  SubmitPull(key, {.priority = priority, .out = out, .done = pulled.Callback()});
  const absl::Status status = node_->FailIfServerIsGone(pulled.Await());
  AddWait(start);
  return status;
}

absl::StatusOr<const TensorPlan*> TensorTraffic::FindForPull(const Key& key, size_t elements) {
  SLIMPS_RETURN_IF_ERROR(node_->CheckOpen());
  SLIMPS_ASSIGN_OR_RETURN(const TensorPlan* found, keys_->Find(key));
  SLIMPS_RETURN_IF_ERROR(CheckLength(*found, elements, "pull"));
  return found;
}

absl::Status TensorTraffic::AwaitOwnPushes(const TensorPlan& tensor) {
  if (mode_ == wire::DIST_SYNC) return absl::OkStatus();
  SLIMPS_RETURN_IF_ERROR(arriving_.Await(tensor, options_.timeout));
  Awaited acknowledged;
  push_.WhenAcknowledged(tensor, acknowledged.Callback());
  return node_->FailIfServerIsGone(acknowledged.Await());
}

void TensorTraffic::SubmitPull(const Key& key, PullJob job) {
  const absl::StatusOr<const TensorPlan*> tensor = FindForPull(key, job.out.size());
  if (!tensor.ok()) return job.done(tensor.status());
  job.tensor = *tensor;
  job.priority = PriorityOf(job.priority);
  job.done = [node = node_, done = std::move(job.done)](const absl::Status& pulled) {
    done(node->InOwnWords(pulled));
  };
  if (mode_ != wire::DIST_SYNC) {
    // Versions do not count this worker's pushes in these modes. An acknowledged push has been
    // applied, so the pull waits for the acknowledgements.
    return arriving_.When(
        **tensor, [this, found = *tensor, acknowledged = pull_.SubmitLater(std::move(job))] {
          push_.WhenAcknowledged(*found, acknowledged);
        });
  }
  job.min_version = NewestPushed(key);
  if (simulation::Is(Mutant::kStalePull) && job.min_version > 0) --job.min_version;
  // No round is complete without this worker's push until it leaves, so there is no later version.
  job.is_newest = !left_.load();
  if (job.kind == PullKind::kPlain && codecs_->NeedsCopy(*job.tensor, job.min_version)) {
    job.kind = PullKind::kThroughCopy;
  }
  pull_.Submit(std::move(job));
}

uint64_t TensorTraffic::NewestPushed(const Key& key) const {
  return mode_ == wire::DIST_SYNC ? keys_->PushedRounds(key) : 0;
}

wire::PullItem TensorTraffic::MakePull(const TensorPlan& tensor, size_t partition,
                                       uint64_t min_version) const {
  wire::PullItem pull;
  pull.mutable_id()->set_key(tensor.key.id());
  pull.mutable_id()->set_partition(static_cast<uint32_t>(partition));
  pull.set_min_version(min_version);
  pull.set_newest(mode_ != wire::DIST_SYNC || left_.load());
  pull.set_timeout_ms(HoldMs(options_.timeout));
  pull.set_elements(tensor.partitions[partition].elements);
  return pull;
}

// ---- both ---------------------------------------------------------------------------------------

absl::Status TensorTraffic::PushPull(const Key& key, std::span<const float> gradient,
                                     std::span<float> out, int priority) {
  // Checked before the round is counted: a pull that cannot be must not consume it.
  SLIMPS_RETURN_IF_ERROR(FindForPull(key, out.size()).status());
  SLIMPS_ASSIGN_OR_RETURN(PushJob job, MakePushJob(key, gradient, priority));
  Awaited pulled;
  SteadyTime start;
  const auto send = [&] { return SendTogether(job, out, pulled.Callback(), &start); };
  const absl::StatusOr<bool> sent = SayingWhatFor("push", job.tensor->key.typed_name(), send);
  if (!sent.ok()) {
    node_->Fail(sent.status(), WorkerNode::Cause::kOurs);  // as in Submit
    return node_->FirstError();
  }
  if (*sent) {
    const absl::Status status = node_->FailIfServerIsGone(pulled.Await());
    AddWait(start);
    return status;
  }
  SLIMPS_RETURN_IF_ERROR(Submit(std::move(job)));
  return Pull(key, out, priority);
}

absl::StatusOr<bool> TensorTraffic::SendTogether(const PushJob& job, std::span<float> out,
                                                 std::function<void(absl::Status)> pulled,
                                                 SteadyTime* prepared) {
  const TensorPlan& tensor = *job.tensor;
  // SubmitWithPush takes plain pulls only: no change of the weights, and none that is measured.
  if (mode_ != wire::DIST_SYNC || !options_.coalesce || phases_.Has(tensor) ||
      codecs_->NeedsCopy(tensor, job.round) || codecs_->plan()->MeasuresPull(tensor, job.round)) {
    return false;
  }
  SLIMPS_ASSIGN_OR_RETURN(std::optional<OutgoingItem> push, push_.PrepareNow(job));
  if (!push.has_value()) return false;
  *prepared = options_.clock->Now();
  pull_.SubmitWithPush({.tensor = &tensor,
                        .min_version = job.round,
                        .priority = job.priority,
                        .out = out,
                        .is_newest = true,  // after Leave the push is refused, and the pull with it
                        .done = std::move(pulled)},
                       *std::move(push));
  return true;
}

}  // namespace slimps
