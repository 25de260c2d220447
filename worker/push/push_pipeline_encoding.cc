// SPDX-License-Identifier: Apache-2.0
// PushPipeline's encoding: what its thread does with one work after another.
#include <algorithm>
#include <cmath>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "compress/kernels/kernels.h"
#include "proto/base/status_macros.h"
#include "proto/net/send_priority.h"
#include "worker/push/push_pipeline.h"
#include "worker/tensor/value_check.h"

namespace slimps {

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
    const std::shared_ptr<GradientLoan> loan = work.job->loan;
    const auto push = [&] {
      const absl::Status pushed = Push(std::move(work));
      // The batches must leave once the queue is empty: no later work may come to fill them up.
      if (queue_is_empty) Send(coalescer_.TakeAll());
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
           [&] { SayingWhatFor("push", tensor.key.typed_name(), push); });
    EndEncoding();
  }
}

absl::Status PushPipeline::Push(Work work) {
  if (work.job->loan != nullptr) SLIMPS_RETURN_IF_ERROR(CheckLent(&work));
  return work.whole_tensor ? PushAndMeasure(std::move(work)) : PushPartition(std::move(work));
}

absl::Status PushPipeline::CheckLent(Work* work) const {
  const TensorPlan& tensor = *work->job->tensor;
  const float scale = options_.payloads.grad_scale;
  PushJob checked = *work->job;
  checked.gradient_bound = 0;
  for (size_t i = 0; i < work->grad_bufs.size(); ++i) {
    const std::span<const float> values = work->grad_bufs[i]->floats();
    const float largest = BestKernels().raw.largest(values.data(), values.size());
    if (std::isinf(largest * scale) && !options_.payloads.pass_non_finite) {
      return CheckFinite(tensor.key, values, scale, "push",
                         tensor.partitions[work->partition + i].offset, "the store has failed");
    }
    checked.gradient_bound = std::max(checked.gradient_bound, largest);
  }
  work->job = std::make_shared<const PushJob>(std::move(checked));
  return absl::OkStatus();
}

void PushPipeline::EndEncoding() {
  MutexLock lock(&mutex_);
  encoding_ = false;
  if (!queue_.empty()) work_.NotifyOne();
  if (unacknowledged_.size() == 0 || looking_ > 0) changed_.NotifyAll();  // for AwaitIdle, Look
}

absl::Status PushPipeline::SendPolicyReport(const PushJob& job) {
  return plan_.SendPolicyReport(job.round, job.submitted, &probe_, [this] {
    MutexLock lock(&mutex_);
    return link_.Take();
  });
}

absl::Status PushPipeline::ShowGradient(const PushJob& job, size_t partition,
                                        const std::shared_ptr<HostBuffer>& grad_buf) {
  CodecState* const state =
      items_.states().Find(job.tensor->key.id(), static_cast<uint32_t>(partition));
  const GradientPart part{.tensor = job.tensor,
                          .partition = partition,
                          .round = job.round,
                          .grad_buf = grad_buf,
                          .gradient_bound = job.gradient_bound,
                          .submitted = job.submitted};
  const std::span<const float> residual =
      state == nullptr ? std::span<const float>() : state->residual();
  return probe_.See(part, residual, plan_.get());
}

absl::Status PushPipeline::Look(const PushJob& job) {
  if (!plan_->adapts()) return absl::OkStatus();
  {
    MutexLock lock(&mutex_);
    ++looking_;
    // The wait ends: whoever encodes waits at most for a decision, and no longer than its timeout.
    while (failed_.ok() && encoding_) changed_.Wait(&mutex_);
    --looking_;
    SLIMPS_RETURN_IF_ERROR(failed_);
    encoding_ = true;
  }
  absl::Status seen = SendPolicyReport(job);
  for (size_t i = 0; i < job.grad_bufs.size() && seen.ok(); ++i) {
    seen = ShowGradient(job, i, job.grad_bufs[i]);
  }
  EndEncoding();
  return seen;
}

absl::Status PushPipeline::PushPartition(Work work) {
  const PushJob& job = *work.job;
  // Pulls of the round before may still be measured: the servers answer with a version's change
  // only until they make the next version.
  if (options_.await_measured_pulls && job.round > 1 && plan_->IsMeasured(job.round - 1)) {
    options_.await_measured_pulls();
  }
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
  plan_.SendReport(job.round);
  if (plan_->adapts()) SLIMPS_RETURN_IF_ERROR(SendPolicyReport(job));
  SLIMPS_ASSIGN_OR_RETURN(const Codec* codec, plan_.AwaitCodec(*job.tensor, job.round));
  const TensorPlan* const tensor = job.tensor;
  if (grad_buf != nullptr && plan_->adapts()) {
    SLIMPS_RETURN_IF_ERROR(ShowGradient(job, partition, grad_buf));
  }
  const size_t held = grad_buf != nullptr ? tensor->partitions[partition].elements * sizeof(float)
                                          : job.ReadyBytes(partition);
  SLIMPS_ASSIGN_OR_RETURN(PreparedPush prepared, items_.Make(job, partition, std::move(grad_buf),
                                                             *codec, plan_->compressor()));
  const size_t bytes = prepared.item.payload.size();
  // The bytes count until the answer, so that the bound covers payloads in flight too.
  prepared.item.done = [this, tensor, round = job.round, turn, bytes, held,
                        loan = std::weak_ptr(job.loan)](Answer answer) {
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
  CountPrepared(*job.tensor, prepared, *codec);
  ++under_way_;
  return std::move(prepared.item);
}

absl::Status PushPipeline::PushAndMeasure(Work work) {
  const PushJob& job = *work.job;
  Send(coalescer_.TakeAll());
  const TensorPlan& tensor = *job.tensor;
  SLIMPS_ASSIGN_OR_RETURN(const Codec* codec, plan_.AwaitCodec(tensor, job.round));
  absl::Duration encode;
  size_t bytes = 0;
  std::vector<OutgoingItem> items;
  for (size_t i = 0; i < tensor.partitions.size(); ++i) {
    SLIMPS_ASSIGN_OR_RETURN(PreparedPush prepared, items_.Make(job, i, std::move(work.grad_bufs[i]),
                                                               *codec, plan_->compressor()));
    encode += prepared.encode;
    bytes += prepared.item.payload.size();
    {
      MutexLock lock(&mutex_);
      CountPrepared(tensor, prepared, *codec);
    }
    std::get<wire::PushItem>(prepared.item.item).set_profile(true);
    items.push_back(std::move(prepared.item));
  }
  // Everything is encoded before the link is awaited, so that encoding does not fall into the time.
  if (options_.await_measured_pulls) options_.await_measured_pulls();
  AwaitQuiet();
  SLIMPS_ASSIGN_OR_RETURN(const Passage passage,
                          measurement_.Send(tensor, SendPriority(job.round, job.priority), items));
  if (passage.communication > absl::ZeroDuration()) {
    plan_->RecordPush(tensor, job.round, passage.communication, encode + passage.decode);
  }
  UnacknowledgedPushes::Waiters waiters;
  {
    MutexLock lock(&mutex_);
    bytes_waiting_ -= tensor.bytes();
    waiters = unacknowledged_.Take(tensor.key.id(), work.turn, tensor.partitions.size());
    totals_.send += passage.communication;
    totals_.payload_bytes += bytes;  // counted once, however often it was sent
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

}  // namespace slimps
