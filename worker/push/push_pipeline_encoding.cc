// SPDX-License-Identifier: Apache-2.0
// PushPipeline's encoding: what its threads do with the works.
#include <memory>
#include <optional>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "proto/base/status_macros.h"
#include "proto/net/send_priority.h"
#include "worker/push/push_pipeline.h"

namespace slimps {

void PushPipeline::Run() {
  for (;;) {
    std::optional<EncodeWork> work;
    {
      MutexLock lock(&mutex_);
      while (!stopping_ && (choosing_ || !(work = queue_.Begin()))) work_.Wait(&mutex_);
      if (!work.has_value()) return;
      choosing_ = true;
    }
    const std::shared_ptr<GradientLoan> loan = work->job->loan;
    const auto push = [&] {
      const absl::Status pushed = Push(&*work);
      // The batches must leave once no work can begin: none may come to fill them up.
      if (!CanBegin()) Flush();
      if (pushed.ok()) return;
      if (loan != nullptr) loan->Fail(pushed);
      // The round cannot be completed without this work, so the store is told and fails.
      options_.on_error(pushed);
    };
    const auto tell = [&](const std::bad_alloc& error) {
      if (loan != nullptr) loan->Fail(OutOfMemoryStatus(error));
      options_.on_out_of_memory(error);
    };
    OrTell(options_.on_out_of_memory ? OnOutOfMemory(tell) : nullptr,
           [&] { SayingWhatFor("push", work->job->tensor->key.typed_name(), push); });
    MutexLock lock(&mutex_);
    queue_.End(*work);
    NotifyOthers();
  }
}

absl::Status PushPipeline::Push(EncodeWork* work) {
  absl::Cleanup choosing = [this, work] { EndChoosing(*work); };
  SLIMPS_ASSIGN_OR_RETURN(const Codec* codec, encoder_.Choose(work));
  // Look waits for its end, too: what it encodes would disturb the times.
  if (work->whole_tensor) return PushAndMeasure(work, *codec);
  std::move(choosing).Invoke();
  SLIMPS_ASSIGN_OR_RETURN(OutgoingItem item, MakeItem(work, *codec));
  const PushJob& job = *work->job;
  MutexLock lock(&sending_);
  Send(coalescer_.Add(job.tensor->partitions[work->partition].server, std::move(item),
                      SendPriority(job.round, job.priority)));
  return absl::OkStatus();
}

void PushPipeline::EndChoosing(const EncodeWork& work) {
  MutexLock lock(&mutex_);
  choosing_ = false;
  // To wake another thread costs more than to encode a small partition, after which this thread
  // takes the next one.
  const PartitionPlan& part = work.job->tensor->partitions[work.partition];
  if (part.elements * sizeof(float) >= kSmallBytes || looking_ > 0) NotifyOthers();
}

void PushPipeline::NotifyOthers() {
  if (!queue_.empty()) work_.NotifyOne();
  if (unacknowledged_.size() == 0 || looking_ > 0) changed_.NotifyAll();  // for AwaitIdle, Look
}

bool PushPipeline::CanBegin() const {
  MutexLock lock(&mutex_);
  return queue_.CanBegin();
}

absl::StatusOr<std::optional<OutgoingItem>> PushPipeline::PrepareNow(const PushJob& job) {
  const TensorPlan& tensor = *job.tensor;
  if (tensor.partitions.size() != 1 || tensor.bytes() > Coalescer::kSmallItemBytes ||
      encoder_.plan()->MeasuresPush(tensor, job.round) ||
      (job.round > 1 && encoder_.plan()->IsMeasured(job.round - 1))) {
    return std::nullopt;
  }
  PushJob submitted = job;
  submitted.submitted = options_.clock->Now();
  EncodeWork work{.grad_bufs = std::exchange(submitted.grad_bufs, {})};
  work.job = std::make_shared<const PushJob>(std::move(submitted));
  {
    MutexLock lock(&mutex_);
    SLIMPS_RETURN_IF_ERROR(failed_);
    // The calling thread takes a push thread's place only while those are idle, to keep the order.
    if (choosing_ || !queue_.idle() || !queue_.empty()) return std::nullopt;
    work.turn = unacknowledged_.Add(tensor.key.id(), 1);
    bytes_waiting_ += job.bytes();
    Close();
  }
  const absl::Cleanup open = [this] { Open(); };
  SLIMPS_ASSIGN_OR_RETURN(const Codec* codec, encoder_.Choose(&work));
  SLIMPS_ASSIGN_OR_RETURN(OutgoingItem item, MakeItem(&work, *codec));
  return item;
}

absl::Status PushPipeline::Look(const PushJob& job) {
  if (!encoder_.plan()->adapts()) return absl::OkStatus();
  {
    MutexLock lock(&mutex_);
    ++looking_;
    // The wait ends: a choice takes at most until its decision comes, or the timeout.
    while (failed_.ok() && choosing_) changed_.Wait(&mutex_);
    --looking_;
    SLIMPS_RETURN_IF_ERROR(failed_);
    choosing_ = true;
  }
  const absl::Cleanup end = [this] {
    MutexLock lock(&mutex_);
    choosing_ = false;
    NotifyOthers();
  };
  return encoder_.Look(job);
}

absl::StatusOr<OutgoingItem> PushPipeline::MakeItem(EncodeWork* work, const Codec& codec) {
  const TensorPlan* const tensor = work->job->tensor;
  const size_t held = !work->grad_bufs.empty()
                          ? tensor->partitions[work->partition].elements * sizeof(float)
                          : work->job->ReadyBytes(work->partition);
  SLIMPS_ASSIGN_OR_RETURN(PreparedPush prepared, encoder_.Make(work, /*index=*/0, codec));
  const size_t bytes = prepared.item.payload.size();
  // The bytes count until the answer, so that the bound covers payloads in flight too.
  prepared.item.done = [this, tensor, round = work->job->round, turn = work->turn, bytes, held,
                        loan = std::weak_ptr(work->job->loan)](Answer answer) {
    if (const auto on_loan = loan.lock(); on_loan != nullptr && !answer.status.ok()) {
      on_loan->Fail(answer.status);
    }
    {
      MutexLock lock(&mutex_);
      bytes_waiting_ -= held;
    }
    OnAnswered(*tensor, round, turn, bytes, answer);
  };
  MutexLock lock(&mutex_);
  ++under_way_;  // `done` runs in any case
  tally_.Prepared(*tensor, prepared, codec);
  return std::move(prepared.item);
}

absl::Status PushPipeline::PushAndMeasure(EncodeWork* work, const Codec& codec) {
  const PushJob& job = *work->job;
  const TensorPlan& tensor = *job.tensor;
  Flush();
  const size_t partitions = tensor.partitions.size();
  absl::Duration encode;
  size_t bytes = 0;
  std::vector<OutgoingItem> items;
  for (size_t i = 0; i < partitions; ++i) {
    SLIMPS_ASSIGN_OR_RETURN(PreparedPush prepared, encoder_.Make(work, i, codec));
    encode += prepared.encode;
    bytes += prepared.item.payload.size();
    {
      MutexLock lock(&mutex_);
      tally_.Prepared(tensor, prepared, codec);
    }
    std::get<wire::PushItem>(prepared.item.item).set_profile(true);
    items.push_back(std::move(prepared.item));
  }
  // One thread has encoded here what several encode in other rounds, a partition each.
  const size_t turns = (partitions + thread_count_ - 1) / thread_count_;
  encode = encode * turns / partitions;
  // Everything is encoded before the link is awaited, so that encoding does not fall into the time.
  if (options_.await_measured_pulls) options_.await_measured_pulls();
  AwaitQuiet();
  SLIMPS_ASSIGN_OR_RETURN(const Passage passage,
                          measurement_.Send(tensor, SendPriority(job.round, job.priority), items));
  if (passage.communication > absl::ZeroDuration()) {
    encoder_.plan()->RecordPush(tensor, job.round, passage.communication, encode + passage.decode);
  }
  UnacknowledgedPushes::Waiters waiters;
  {
    MutexLock lock(&mutex_);
    bytes_waiting_ -= tensor.bytes();
    waiters = unacknowledged_.Take(tensor.key.id(), work->turn, partitions);
    tally_.Acknowledged(bytes, passage.communication);  // once, however often it was sent
    changed_.NotifyAll();
  }
  UnacknowledgedPushes::Tell(waiters, absl::OkStatus());
  return absl::OkStatus();
}

void PushPipeline::AwaitQuiet() {
  MutexLock lock(&mutex_);
  const auto quiet = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return !failed_.ok() || under_way_ == 0;
  };
  (void)changed_.Await(&mutex_, options_.timeout, quiet);
}

void PushPipeline::Send(std::vector<Batch> batches) {
  for (Batch& batch : batches) {
    courier_->Dispatch(batch.server, std::move(batch.items), batch.priority);
  }
}

void PushPipeline::Flush() {
  MutexLock lock(&sending_);
  Send(coalescer_.TakeAll());
}

}  // namespace slimps
