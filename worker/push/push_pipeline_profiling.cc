// SPDX-License-Identifier: Apache-2.0
// PushPipeline: measured pushes, which go one by one, and the reports that result from them.
#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "proto/base/clock.h"
#include "proto/base/status_macros.h"
#include "proto/net/send_priority.h"
#include "worker/push/push_pipeline.h"

namespace slimps {

absl::Status PushPipeline::PushAndMeasure(Work work) {
  const PushJob& job = *work.job;
  Send(coalescer_.TakeAll());
  SLIMPS_ASSIGN_OR_RETURN(const Codec* codec, AwaitCodec(job));
  const TensorPlan& tensor = *job.tensor;
  absl::Duration encode;
  size_t bytes = 0;
  std::vector<OutgoingItem> items;
  for (size_t i = 0; i < tensor.partitions.size(); ++i) {
    SLIMPS_ASSIGN_OR_RETURN(Prepared prepared,
                            Prepare(job, i, std::move(work.grad_bufs[i]), *codec));
    encode += prepared.encode;
    bytes += prepared.item.payload.size();
    {
      MutexLock lock(&mutex_);
      CountPrepared(tensor, prepared, tensor.partitions[i].elements);
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
    plan()->RecordPush(tensor, job.round, passage.communication, encode + passage.decode);
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

// Waits until nothing that this worker sent before is on the link, so that a measured push has it
// alone. If that takes longer than the timeout, one sample is spoilt, and nothing else.
void PushPipeline::AwaitQuiet() {
  MutexLock lock(&mutex_);
  const auto quiet = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return !failed_.ok() || under_way_ == 0;
  };
  (void)changed_.Await(&mutex_, options_.timeout, quiet);
}

void PushPipeline::MaybeReport(uint64_t round) {
  std::optional<wire::ThresholdReport> report = plan()->TakeReport(round);
  if (report) options_.on_report(*std::move(report));
}

absl::StatusOr<const Codec*> PushPipeline::AwaitCodec(const PushJob& job) {
  const SteadyTime deadline = options_.clock->Now() + options_.timeout;
  // Short enough that the plan's patience ends before the deadline does.
  const absl::Duration interval =
      std::min(options_.report_interval, options_.timeout / (CompressionPlan::kPatience + 1));
  for (;;) {
    absl::StatusOr<const Codec*> codec = plan()->CodecFor(*job.tensor, job.round, interval);
    if (!absl::IsDeadlineExceeded(codec.status()) || options_.clock->Now() >= deadline)
      return codec;
    // The report or the decision may have been lost. The scheduler answers a repeated report with
    // the decision.
    std::optional<wire::ThresholdReport> again = plan()->UnansweredReport();
    if (again) options_.on_report(*std::move(again));
  }
}

void PushPipeline::FinishProfiling() {
  for (wire::ThresholdReport& report : plan()->TakeLastReports()) {
    options_.on_report(std::move(report));
  }
}

}  // namespace slimps
