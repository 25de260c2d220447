// SPDX-License-Identifier: Apache-2.0
#include "worker/store/tensor_traffic.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>

#include "proto/base/out_of_memory.h"
#include "proto/base/status_macros.h"
#include "proto/base/trace/trace.h"
#include "worker/combination.h"
#include "worker/store/auxiliary_tensors.h"
#include "worker/tensor/value_check.h"

namespace slimps {
namespace {

PullMergerOptions MakePullOptions(const KVStoreOptions& options, WorkerNode* node,
                                  CodecChoice* codecs) {
  return {.timeout = options.timeout,
          .change_codec = [codecs](
                              const TensorPlan& tensor,
                              uint64_t version) { return codecs->ChangeCodecFor(tensor, version); },
          .measures =
              [codecs](const TensorPlan& tensor, uint64_t version) {
                return codecs->plan()->MeasuresPull(tensor, version);
              },
          .momentum = codecs->momentum(),
          .on_measured =
              [codecs](const PullMeasurement& measured) {
                codecs->plan()->RecordPull(*measured.tensor, measured.version,
                                           measured.communication, measured.coding);
              },
          .clock = options.clock,
          .on_out_of_memory = node->on_out_of_memory()};
}

PushPipelineOptions MakePushOptions(const KVStoreOptions& options, WorkerNode* node,
                                    CodecChoice* codecs, PullMerger* pull) {
  PushPipelineOptions push;
  push.clock = options.clock;
  push.payloads = {.grad_scale = options.grad_scale,
                   .encode_threads = options.encode_threads,
                   .worker = node->rank()};
  push.timeout = options.timeout;
  push.checksums = options.checksums;
  push.on_report = [node](wire::ThresholdReport report) { node->Report(std::move(report)); };
  push.change_codec = [codecs](const TensorPlan& tensor, uint64_t round) {
    return codecs->ChangeCodecFor(tensor, round);
  };
  push.momentum = codecs->momentum();
  push.sends_whole_gradients = [codecs] { return codecs->compresses_momenta(); };
  push.await_measured_pulls = [pull, timeout = options.timeout] { pull->AwaitMeasured(timeout); };
  push.on_error = [node](absl::Status why) { node->Fail(why, WorkerNode::Cause::kOurs); };
  push.on_out_of_memory = node->on_out_of_memory();
  return push;
}

PhasedPushesOptions MakePhasesOptions(const KVStoreOptions& options, WorkerNode* node) {
  return {.exchange = {.timeout = options.timeout, .checksums = options.checksums},
          .grad_scale = options.grad_scale,
          .worker = node->rank(),
          .on_error = [node](absl::Status why) { node->Fail(why, WorkerNode::Cause::kOurs); },
          .clock = options.clock,
          .on_out_of_memory = node->on_out_of_memory()};
}

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

TensorTraffic::TensorTraffic(wire::StoreMode mode, const KVStoreOptions& options, KeyTable* keys,
                             WorkerNode* node, CodecChoice* codecs)
    : mode_(mode),
      options_(options),
      keys_(keys),
      node_(node),
      codecs_(codecs),
      device_(MakeHostDevice()),
      staging_(device_.get(), options.staging_bytes),
      pull_(node->courier(), MakePullOptions(options, node, codecs)),
      push_(node->courier(), codecs->plan(), MakePushOptions(options, node, codecs, &pull_)),
      phases_(node->courier(), &push_, MakePhasesOptions(options, node)) {}

void TensorTraffic::Fail(const absl::Status& why) {
  staging_.Fail(why);
  phases_.Fail(why);
  push_.Fail(why);
}

absl::Status TensorTraffic::Drain() {
  const SteadyTime start = options_.clock->Now();
  absl::Status drained = phases_.Drain(options_.timeout);
  if (drained.ok()) drained = push_.Drain(options_.timeout);
  AddWait(start);
  return drained;
}

absl::Status TensorTraffic::UseStates(
    const std::function<absl::Status(StateStore&, LevelProbe&)>& use) {
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

absl::StatusOr<PushJob> TensorTraffic::MakePushJob(const Key& key, std::span<const float> gradient,
                                                   int priority) {
  SLIMPS_RETURN_IF_ERROR(node_->CheckOpen());
  SLIMPS_ASSIGN_OR_RETURN(const TensorPlan* tensor, keys_->Find(key));
  SLIMPS_RETURN_IF_ERROR(CheckLength(*tensor, gradient.size(), "push"));
  SLIMPS_RETURN_IF_ERROR(CheckCodec());
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
  TraceLog::Global().AddOfThread(TraceStage::kCopy,
                                 {key.typed_name(), 0, job.round, gradient.size()}, start,
                                 options_.clock->Now());
  return job;
}

absl::Status TensorTraffic::CheckCodec() {
  if (checked_codec_.load()) return absl::OkStatus();
  SLIMPS_RETURN_IF_ERROR(CheckTakesSome(codecs_->plan()->compressor(), keys_->InNameOrder()));
  checked_codec_.store(true);
  return absl::OkStatus();
}

PushJob TensorTraffic::CountJob(const TensorPlan* tensor, int priority) {
  CountedPush counted = keys_->CountPush(tensor->key);
  if (counted.hyper.has_value()) {
    counted.hyper->set_weight_decay(
        DecayFactor(codecs_->plan()->compressor(), codecs_->optimizer()) *
        counted.hyper->weight_decay());
  }
  return {.tensor = tensor,
          .round = counted.round,
          .priority = PriorityOf(priority),
          .grad_bufs = {},
          .hyper = std::move(counted.hyper)};
}

absl::StatusOr<float> TensorTraffic::CopyGradient(const TensorPlan& tensor,
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

absl::Status TensorTraffic::PushNothing(const Key& key) {
  SLIMPS_RETURN_IF_ERROR(node_->CheckOpen());
  SLIMPS_ASSIGN_OR_RETURN(const TensorPlan* tensor, keys_->Find(key));
  return Submit(CountJob(tensor, /*priority=*/0));
}

absl::Status TensorTraffic::PushRows(const TensorPlan& tensor,
                                     std::shared_ptr<const std::vector<ReadyPayload>> payloads,
                                     int priority) {
  PushJob job = CountJob(&tensor, priority);
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
  Awaited acknowledged;
  push_.WhenAcknowledged(tensor, acknowledged.Callback());
  return node_->FailIfServerIsGone(acknowledged.Await());
}

void TensorTraffic::SubmitPull(const Key& key, PullJob job) {
  const absl::StatusOr<const TensorPlan*> tensor = FindForPull(key, job.out.size());
  if (!tensor.ok()) return job.done(tensor.status());
  job.tensor = *tensor;
  job.priority = PriorityOf(job.priority);
  if (mode_ != wire::DIST_SYNC) {
    // Versions do not count this worker's pushes in these modes. An acknowledged push has been
    // applied, so the pull waits for the acknowledgements.
    return push_.WhenAcknowledged(**tensor, pull_.SubmitLater(std::move(job)));
  }
  job.min_version = NewestPushed(key);
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
  pull.set_timeout_ms(static_cast<uint64_t>(absl::ToInt64Milliseconds(options_.timeout)));
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
