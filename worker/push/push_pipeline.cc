// SPDX-License-Identifier: Apache-2.0
#include "worker/push/push_pipeline.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "compress/format/format.h"
#include "proto/base/status_macros.h"
#include "proto/net/send_priority.h"

namespace slimps {
namespace {

// Returns the bytes that a job holds until it is answered.
size_t BytesOf(const PushJob& job) {
  size_t bytes = job.carries() ? job.tensor->bytes() : 0;
  for (size_t i = 0; i < job.tensor->partitions.size(); ++i) bytes += job.ReadyBytes(i);
  return bytes;
}

}  // namespace

PushPipeline::PushPipeline(Courier* courier, CompressionPlan* plan, PushPipelineOptions options)
    : courier_(courier),
      options_(std::move(options)),
      plan_(plan, {.timeout = options_.timeout,
                   .report_interval = options_.report_interval,
                   .on_report = options_.on_report,
                   .clock = options_.clock}),
      items_({.payloads = options_.payloads,
              .checksums = options_.checksums,
              .change_codec = options_.change_codec,
              .momentum = options_.momentum,
              .sends_whole_gradients = options_.sends_whole_gradients,
              .clock = options_.clock}),
      probe_(options_.payloads, options_.clock),
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
  // What still waits for company is dropped here: the callbacks of dropped items use the members
  // that are declared after the coalescer.
  (void)coalescer_.TakeAll();
}

bool PushPipeline::HasRoom(size_t bytes) const {
  MutexLock lock(&mutex_);
  return bytes <= options_.max_bytes_waiting - std::min(bytes_waiting_, options_.max_bytes_waiting);
}

absl::Status PushPipeline::Submit(PushJob job) {
  const size_t bytes = BytesOf(job);
  const bool carries = job.carries();
  GradientBuffers grad_bufs = std::exchange(job.grad_bufs, {});
  SLIMPS_ASSIGN_OR_RETURN(const Announced place, TakePlace(std::move(job), bytes, carries));
  return QueueAll(place, std::move(grad_bufs));
}

absl::StatusOr<PushPipeline::Announced> PushPipeline::Announce(PushJob job) {
  const size_t bytes = job.tensor->bytes();
  return TakePlace(std::move(job), bytes, /*carries=*/true);
}

void PushPipeline::Arrive(const Announced& announced, size_t partition,
                          std::shared_ptr<HostBuffer> grad_buf, float gradient_bound) {
  PushJob job = *announced.job;
  job.gradient_bound = gradient_bound;
  job.submitted = options_.clock->Now();
  // After a failure there is nobody to tell.
  (void)Queue({Work{.job = std::make_shared<const PushJob>(std::move(job)),
                    .grad_bufs = {std::move(grad_buf)},
                    .partition = partition,
                    .turn = announced.turn}});
}

void PushPipeline::ArriveWhole(const Announced& announced, GradientBuffers grad_bufs,
                               float gradient_bound) {
  PushJob job = *announced.job;
  job.gradient_bound = gradient_bound;
  job.submitted = options_.clock->Now();
  (void)QueueAll({.job = std::make_shared<const PushJob>(std::move(job)),
                  .turn = announced.turn,
                  .measured = announced.measured},
                 std::move(grad_bufs));
}

absl::Status PushPipeline::QueueAll(const Announced& place, GradientBuffers grad_bufs) {
  if (place.measured) {
    return Queue({Work{.job = place.job,
                       .grad_bufs = std::move(grad_bufs),
                       .whole_tensor = true,
                       .turn = place.turn}});
  }
  std::vector<Work> works;
  for (size_t i = 0; i < place.job->tensor->partitions.size(); ++i) {
    works.push_back({.job = place.job, .grad_bufs = {}, .partition = i, .turn = place.turn});
    // Each work has its own buffers, so that a partition's memory is free as soon as that partition
    // is done.
    if (!grad_bufs.empty()) works.back().grad_bufs.push_back(std::move(grad_bufs[i]));
  }
  return Queue(std::move(works));
}

absl::StatusOr<PushPipeline::Announced> PushPipeline::TakePlace(PushJob job, size_t bytes,
                                                                bool carries) {
  const TensorPlan& tensor = *job.tensor;
  if (job.submitted == SteadyTime()) job.submitted = options_.clock->Now();
  const bool measured = carries && plan_->MeasuresPush(tensor, job.round);
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
  return Announced{.job = std::move(shared), .turn = turn, .measured = measured};
}

absl::Status PushPipeline::Queue(std::vector<Work> works) {
  decltype(queue_) made;
  MutexLock lock(&mutex_);
  SLIMPS_RETURN_IF_ERROR(failed_);
  for (Work& work : works) {
    const int64_t priority = SendPriority(work.job->round, work.job->priority);
    made.emplace(std::pair(-priority, next_sequence_++), std::move(work));
  }
  queue_.merge(made);
  work_.NotifyOne();
  return absl::OkStatus();
}

absl::StatusOr<std::optional<OutgoingItem>> PushPipeline::PrepareNow(const PushJob& job) {
  const TensorPlan& tensor = *job.tensor;
  if (tensor.partitions.size() != 1 || tensor.bytes() > Coalescer::kSmallItemBytes ||
      plan_->MeasuresPush(tensor, job.round) ||
      (job.round > 1 && plan_->IsMeasured(job.round - 1))) {
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
  PushJob submitted = job;
  submitted.submitted = options_.clock->Now();
  absl::StatusOr<OutgoingItem> item = PreparePartition(submitted, /*partition=*/0, turn,
                                                       job.carries() ? job.grad_bufs[0] : nullptr);
  EndEncoding();
  if (!item.ok()) return item.status();
  return *std::move(item);
}

void PushPipeline::CountPrepared(const TensorPlan& tensor, const PreparedPush& prepared,
                                 const Codec& codec) {
  totals_.encode += prepared.encode;
  totals_.prepared.Add(prepared.elements, prepared.stats, prepared.compressed);
  OfKey& of_key = of_keys_[tensor.key.id()];
  of_key.counts.Add(prepared.elements, prepared.stats, prepared.compressed);
  const wire::Format format = std::get<wire::PushItem>(prepared.item.item).format();
  if (format == wire::ABSENT) return;
  const bool encoded = IsEncoded(static_cast<PayloadFormat>(format));
  of_key.newest = {format, encoded ? std::string_view(codec.spec().name) : ""};
  bytes_by_form_[of_key.newest] += prepared.item.payload.size();
}

void PushPipeline::Send(std::vector<Batch> batches) {
  for (Batch& batch : batches) {
    courier_->Dispatch(batch.server, std::move(batch.items), batch.priority);
  }
}

void PushPipeline::OnAnswered(const TensorPlan& tensor, uint64_t round, uint64_t turn, size_t bytes,
                              const Answer& answer) {
  UnacknowledgedPushes::Waiters waiters;
  {
    MutexLock lock(&mutex_);
    --under_way_;
    CountForLink(round, bytes, answer.round_trip);
    waiters = unacknowledged_.Take(tensor.key.id(), turn, 1);
    totals_.payload_bytes += bytes;
    totals_.send += answer.round_trip;
    changed_.NotifyAll();
  }
  // on_error and the waiters run without the lock, since they may call the pipeline.
  if (!answer.status.ok()) options_.on_error(answer.status);
  UnacknowledgedPushes::Tell(waiters, answer.status);
}

void PushPipeline::NotePassed(uint64_t round, size_t bytes, absl::Duration round_trip) {
  MutexLock lock(&mutex_);
  CountForLink(round, bytes, round_trip);
}

void PushPipeline::CountForLink(uint64_t round, size_t bytes, absl::Duration round_trip) {
  if (plan_->report_plan().every_rounds == 0) return;  // nobody calls Take
  link_.Answered(round, options_.clock->Now(), bytes, round_trip);
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

absl::Status PushPipeline::UseStates(
    const std::function<absl::Status(StateStore&, LevelProbe&)>& use) {
  {
    MutexLock lock(&mutex_);
    SLIMPS_RETURN_IF_ERROR(AwaitIdle(options_.timeout));
    // Keeps the push thread and PrepareNow from encoding while `use` runs.
    encoding_ = true;
  }
  const absl::Status used = use(items_.states(), probe_);
  EndEncoding();
  return used;
}

void PushPipeline::Fail(const absl::Status& why) {
  UnacknowledgedPushes::Waiters waiters;
  decltype(queue_) dropped;
  {
    MutexLock lock(&mutex_);
    if (failed_.ok()) failed_ = why;
    dropped.swap(queue_);
    waiters = unacknowledged_.TakeWaiters();
    changed_.NotifyAll();
  }
  for (const auto& [turn, work] : dropped) {
    if (work.job->loan != nullptr) work.job->loan->Fail(why);
  }
  UnacknowledgedPushes::Tell(waiters, why);
}

PushCounts PushPipeline::counts(const Key& key) const {
  MutexLock lock(&mutex_);
  const auto found = of_keys_.find(key.id());
  return found == of_keys_.end() ? PushCounts() : found->second.counts;
}

PushedForm PushPipeline::newest_form(const Key& key) const {
  MutexLock lock(&mutex_);
  const auto found = of_keys_.find(key.id());
  return found == of_keys_.end() ? PushedForm() : found->second.newest;
}

PushFigures PushPipeline::figures() const {
  MutexLock lock(&mutex_);
  return {.bytes = bytes_by_form_, .queued = queue_.size()};
}

PushTotals PushPipeline::totals() const {
  MutexLock lock(&mutex_);
  return totals_;
}

}  // namespace slimps
