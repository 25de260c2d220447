// SPDX-License-Identifier: Apache-2.0
#include "worker/push/push_pipeline.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "compress/format/rows.h"
#include "proto/base/clock.h"
#include "proto/base/hash.h"
#include "proto/base/out_of_memory.h"
#include "proto/base/status_macros.h"
#include "proto/base/trace/trace.h"
#include "proto/net/send_priority.h"

namespace slimps {
namespace {

// True for full and half precision: the forms of a gradient that is not compressed.
bool IsPrecision(PayloadFormat format) {
  return format == PayloadFormat::kRawF32 || format == PayloadFormat::kRawF16 ||
         format == PayloadFormat::kRawBf16;
}

// Returns the bytes of the partition's rows, which are held until the answer.
size_t RowBytes(const PushJob& job, size_t partition) {
  return job.rows == nullptr ? 0 : (*job.rows)[partition].size();
}

size_t BytesOf(const PushJob& job) {
  size_t bytes = job.carries() ? job.tensor->bytes() : 0;
  for (size_t i = 0; i < job.tensor->partitions.size(); ++i) bytes += RowBytes(job, i);
  return bytes;
}

}  // namespace

PushPipeline::PushPipeline(Courier* courier, CompressionPlan* plan, PushPipelineOptions options)
    : courier_(courier),
      plan_(plan),
      options_(std::move(options)),
      payloads_(options_.payloads),
      measurement_(
          [this](uint32_t server, std::vector<OutgoingItem> items, int64_t priority) {
            courier_->Dispatch(server, std::move(items), priority);
          },
          2 * options_.timeout, options_.clock),
      thread_("push", [this] { Run(); }) {}

PushPipeline::~PushPipeline() {
  Fail(absl::CancelledError("the store was closed"));
  {
    MutexLock lock(&mutex_);
    stopping_ = true;
    work_.NotifyOne();
  }
  thread_.Join();
}

absl::Status PushPipeline::Submit(PushJob job) {
  const TensorPlan& tensor = *job.tensor;
  const size_t bytes = BytesOf(job);
  const bool whole_tensor = job.carries() && plan()->MeasuresPush(tensor, job.round);
  // Each work has its own buffers, so that a partition's memory is free as soon as that partition
  // is done.
  GradientBuffers grad_bufs = std::exchange(job.grad_bufs, {});
  auto shared = std::make_shared<const PushJob>(std::move(job));
  MutexLock lock(&mutex_);
  const auto has_room = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return !failed_.ok() || bytes_waiting_ <= options_.max_bytes_waiting;
  };
  if (!changed_.Await(&mutex_, options_.timeout, has_room)) {
    return absl::DeadlineExceededError(
        absl::StrCat("push of key ", tensor.key.typed_name(), ": ", bytes_waiting_,
                     " bytes of gradients still wait for the servers after ",
                     absl::FormatDuration(options_.timeout)));
  }
  SLIMPS_RETURN_IF_ERROR(failed_);
  bytes_waiting_ += bytes;
  const uint64_t turn = unacknowledged_.Add(tensor.key.id(), tensor.partitions.size());
  const size_t works = whole_tensor ? 1 : tensor.partitions.size();
  for (size_t i = 0; i < works; ++i) {
    Work work{
        .job = shared, .grad_bufs = {}, .partition = i, .whole_tensor = whole_tensor, .turn = turn};
    if (whole_tensor) {
      work.grad_bufs = std::move(grad_bufs);
    } else if (!grad_bufs.empty()) {
      work.grad_bufs.push_back(std::move(grad_bufs[i]));
    }
    queue_.emplace(std::pair(-SendPriority(shared->round, shared->priority), next_sequence_++),
                   std::move(work));
  }
  work_.NotifyOne();
  return absl::OkStatus();
}

void PushPipeline::Run() {
  for (;;) {
    Work work;
    bool queue_is_empty = false;
    {
      MutexLock lock(&mutex_);
      while (!stopping_ && (encoding_ || queue_.empty())) work_.Wait(&mutex_);
      if (stopping_) return;
      encoding_ = true;
      work = std::move(queue_.begin()->second);
      queue_.erase(queue_.begin());
      queue_is_empty = queue_.empty();
    }
    const TensorPlan& tensor = *work.job->tensor;
    const auto push = [&] {
      const absl::Status pushed =
          work.whole_tensor ? PushAndMeasure(std::move(work)) : PushPartition(std::move(work));
      // The batches must leave once the queue is empty: no later work may come to fill them up.
      if (queue_is_empty) Send(coalescer_.TakeAll());
      // The round cannot be completed without this work, so the store is told and fails.
      if (!pushed.ok()) options_.on_error(pushed);
    };
    OrTell(options_.on_out_of_memory,
           [&] { SayingWhatFor("push", tensor.key.typed_name(), push); });
    EndEncoding();
  }
}

void PushPipeline::EndEncoding() {
  MutexLock lock(&mutex_);
  encoding_ = false;
  if (!queue_.empty()) work_.NotifyOne();
  if (unacknowledged_.size() == 0) changed_.NotifyAll();  // for AwaitIdle
}

absl::StatusOr<std::optional<OutgoingItem>> PushPipeline::PrepareNow(const PushJob& job) {
  const TensorPlan& tensor = *job.tensor;
  if (tensor.partitions.size() != 1 || tensor.bytes() > Coalescer::kSmallItemBytes ||
      plan()->MeasuresPush(tensor, job.round)) {
    return std::nullopt;
  }
  uint64_t turn = 0;
  {
    MutexLock lock(&mutex_);
    SLIMPS_RETURN_IF_ERROR(failed_);
    // The calling thread takes the push thread's place only while that is idle, to keep the order.
    if (encoding_ || !queue_.empty()) return std::nullopt;
    turn = unacknowledged_.Add(tensor.key.id(), 1);
    bytes_waiting_ += BytesOf(job);
    encoding_ = true;
  }
  absl::StatusOr<OutgoingItem> item =
      PreparePartition(job, /*partition=*/0, turn, job.carries() ? job.grad_bufs[0] : nullptr);
  EndEncoding();
  if (!item.ok()) return item.status();
  return *std::move(item);
}

absl::Status PushPipeline::PushPartition(Work work) {
  const PushJob& job = *work.job;
  std::shared_ptr<HostBuffer> grad_buf;
  if (!work.grad_bufs.empty()) grad_buf = std::move(work.grad_bufs[0]);
  SLIMPS_ASSIGN_OR_RETURN(OutgoingItem item,
                          PreparePartition(job, work.partition, work.turn, std::move(grad_buf)));
  Send(coalescer_.Add(job.tensor->partitions[work.partition].server, std::move(item),
                      SendPriority(job.round, job.priority)));
  return absl::OkStatus();
}

absl::StatusOr<OutgoingItem> PushPipeline::PreparePartition(const PushJob& job, size_t partition,
                                                            uint64_t turn,
                                                            std::shared_ptr<HostBuffer> grad_buf) {
  MaybeReport(job.round);
  SLIMPS_ASSIGN_OR_RETURN(const Codec* codec, AwaitCodec(job));
  const TensorPlan* const tensor = job.tensor;
  const bool dense = grad_buf != nullptr;
  const size_t elements = tensor->partitions[partition].elements;
  const size_t held = dense ? elements * sizeof(float) : RowBytes(job, partition);
  SLIMPS_ASSIGN_OR_RETURN(Prepared prepared, Prepare(job, partition, std::move(grad_buf), *codec));
  const size_t bytes = prepared.item.payload.size();
  // The bytes count until the answer, so that the bound covers payloads in flight too.
  prepared.item.done = [this, tensor, turn, bytes, held](Answer answer) {
    {
      MutexLock lock(&mutex_);
      bytes_waiting_ -= held;
    }
    OnAnswered(*tensor, turn, bytes, answer);
  };
  MutexLock lock(&mutex_);
  CountPrepared(*job.tensor, prepared, dense ? elements : prepared.stats.elements_sent);
  ++under_way_;
  return std::move(prepared.item);
}

absl::StatusOr<PushPipeline::Prepared> PushPipeline::Prepare(const PushJob& job, size_t partition,
                                                             std::shared_ptr<HostBuffer> grad_buf,
                                                             const Codec& codec) {
  const PartitionPlan& plan = job.tensor->partitions[partition];
  Prepared prepared;
  prepared.item.key_name = job.tensor->key.typed_name();
  wire::PushItem push;
  push.mutable_id()->set_key(job.tensor->key.id());
  push.mutable_id()->set_partition(static_cast<uint32_t>(partition));
  push.set_round(job.round);
  push.set_elements(plan.elements);
  push.set_priority(job.priority);
  push.set_format(wire::ABSENT);
  if (job.hyper.has_value()) *push.mutable_hyper() = *job.hyper;
  if (options_.change_codec) push.set_change_codec(options_.change_codec(*job.tensor, job.round));
  if (grad_buf != nullptr) {
    const SteadyTime start = options_.clock->Now();
    SLIMPS_ASSIGN_OR_RETURN(MadePayload made, payloads_.Make({.tensor = job.tensor,
                                                              .partition = partition,
                                                              .round = job.round,
                                                              .grad_buf = std::move(grad_buf),
                                                              .gradient_bound = job.gradient_bound},
                                                             codec, this->plan()->compressor()));
    const SteadyTime end = options_.clock->Now();
    TraceLog::Global().AddOfThread(
        TraceStage::kEncode, {prepared.item.key_name, static_cast<uint32_t>(partition), job.round},
        start, end);
    prepared.encode = end - start;
    prepared.stats = made.stats;
    prepared.compressed = !IsPrecision(made.format);
    push.set_format(static_cast<wire::Format>(made.format));
    push.set_payload_bytes(made.payload.size());
    push.set_payload_hash(options_.checksums ? HashBytes(made.payload.bytes()) : 0);
    prepared.item.payload = std::move(made.payload);
  }
  if (job.rows != nullptr) {
    const Payload& rows = (*job.rows)[partition];
    push.set_format(wire::ROWS);
    push.set_payload_bytes(rows.size());
    push.set_payload_hash(options_.checksums ? HashBytes(rows.bytes()) : 0);
    prepared.stats.payload_bytes = rows.size();
    prepared.stats.elements_sent = ElementsInRows(rows.bytes());
    prepared.item.payload = rows;
  }
  prepared.item.item = std::move(push);
  return prepared;
}

void PushPipeline::CountPrepared(const TensorPlan& tensor, const Prepared& prepared,
                                 size_t elements) {
  totals_.encode += prepared.encode;
  totals_.prepared.Add(elements, prepared.stats, prepared.compressed);
  counts_[tensor.key.id()].Add(elements, prepared.stats, prepared.compressed);
}

void PushPipeline::Send(std::vector<Batch> batches) {
  for (Batch& batch : batches) {
    courier_->Dispatch(batch.server, std::move(batch.items), batch.priority);
  }
}

void PushPipeline::OnAnswered(const TensorPlan& tensor, uint64_t turn, size_t bytes,
                              const Answer& answer) {
  UnacknowledgedPushes::Waiters waiters;
  {
    MutexLock lock(&mutex_);
    --under_way_;
    waiters = unacknowledged_.Take(tensor.key.id(), turn, 1);
    totals_.payload_bytes += bytes;
    totals_.send += answer.round_trip;
    changed_.NotifyAll();
  }
  // on_error and the waiters run without the lock, since they may call the pipeline.
  if (!answer.status.ok()) options_.on_error(answer.status);
  UnacknowledgedPushes::Tell(waiters, answer.status);
}

absl::Status PushPipeline::Drain(absl::Duration timeout) {
  MutexLock lock(&mutex_);
  return AwaitIdle(timeout);
}

absl::Status PushPipeline::AwaitIdle(absl::Duration timeout) {
  const auto idle = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return !failed_.ok() || (unacknowledged_.size() == 0 && !encoding_);
  };
  if (!changed_.Await(&mutex_, timeout, idle)) {
    return absl::DeadlineExceededError(absl::StrCat(
        unacknowledged_.size(), " pushes unacknowledged after ", absl::FormatDuration(timeout)));
  }
  return failed_;
}

void PushPipeline::WhenAcknowledged(const TensorPlan& tensor, UnacknowledgedPushes::Waiter done) {
  absl::Status status;
  {
    MutexLock lock(&mutex_);
    status = failed_;
    if (status.ok() && unacknowledged_.Await(tensor.key.id(), done)) return;
  }
  done(status);
}

absl::Status PushPipeline::UseStates(const std::function<absl::Status(StateStore&)>& use) {
  {
    MutexLock lock(&mutex_);
    SLIMPS_RETURN_IF_ERROR(AwaitIdle(options_.timeout));
    // Keeps the push thread and PrepareNow from encoding while `use` runs.
    encoding_ = true;
  }
  const absl::Status used = use(payloads_.states());
  EndEncoding();
  return used;
}

void PushPipeline::Fail(const absl::Status& why) {
  UnacknowledgedPushes::Waiters waiters;
  {
    MutexLock lock(&mutex_);
    if (failed_.ok()) failed_ = why;
    queue_.clear();
    waiters = unacknowledged_.TakeWaiters();
    changed_.NotifyAll();
  }
  UnacknowledgedPushes::Tell(waiters, why);
}

PushCounts PushPipeline::counts(const Key& key) const {
  MutexLock lock(&mutex_);
  const auto found = counts_.find(key.id());
  return found == counts_.end() ? PushCounts() : found->second;
}

PushTotals PushPipeline::totals() const {
  MutexLock lock(&mutex_);
  return totals_;
}

}  // namespace slimps
