// SPDX-License-Identifier: Apache-2.0
#include "worker/push/push_pipeline.h"

#include <algorithm>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "compress/codec/work_arena.h"
#include "proto/base/status_macros.h"

namespace slimps {

PushPipeline::PushPipeline(Courier* courier, CompressionPlan* plan, PushPipelineOptions options)
    : courier_(courier),
      options_(std::move(options)),
      thread_count_(static_cast<size_t>(WorkArena(options_.encode_threads).threads())),
      encoder_(plan, {.items = {.payloads = options_.payloads,
                                .checksums = options_.checksums,
                                .change_codec = options_.change_codec,
                                .momentum = options_.momentum,
                                .sends_whole_gradients = options_.sends_whole_gradients,
                                .clock = options_.clock},
                      .plan = {.timeout = options_.timeout,
                               .report_interval = options_.report_interval,
                               .on_report = options_.on_report,
                               .clock = options_.clock},
                      .await_measured_pulls = options_.await_measured_pulls,
                      .take_link =
                          [this] {
                            MutexLock lock(&mutex_);
                            return link_.Take();
                          }}),
      measurement_(
          [this](uint32_t server, std::vector<OutgoingItem> items, int64_t priority) {
            courier_->Dispatch(server, std::move(items), priority);
          },
          2 * options_.timeout, options_.clock),
      queue_(thread_count_),
      threads_("push", thread_count_, [this] { Run(); }) {}

PushPipeline::~PushPipeline() {
  Fail(absl::CancelledError("the store was closed"));
  {
    MutexLock lock(&mutex_);
    stopping_ = true;
    work_.NotifyAll();
  }
  threads_.Join();
  // What still waits for company is dropped here: the callbacks of dropped items use the members
  // that are declared after the coalescer.
  MutexLock lock(&sending_);
  (void)coalescer_.TakeAll();
}

bool PushPipeline::HasRoom(size_t bytes) const {
  MutexLock lock(&mutex_);
  return bytes <= options_.max_bytes_waiting - std::min(bytes_waiting_, options_.max_bytes_waiting);
}

absl::Status PushPipeline::Submit(PushJob job) {
  const size_t bytes = job.bytes();
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
  (void)Queue({EncodeWork{.job = std::make_shared<const PushJob>(std::move(job)),
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
    return Queue({EncodeWork{.job = place.job,
                             .grad_bufs = std::move(grad_bufs),
                             .whole_tensor = true,
                             .turn = place.turn}});
  }
  std::vector<EncodeWork> works;
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
  const bool measured = carries && encoder_.plan()->MeasuresPush(tensor, job.round);
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

absl::Status PushPipeline::Queue(std::vector<EncodeWork> works) {
  MutexLock lock(&mutex_);
  SLIMPS_RETURN_IF_ERROR(failed_);
  queue_.Add(std::move(works));
  work_.NotifyOne();
  return absl::OkStatus();
}

void PushPipeline::OnAnswered(const TensorPlan& tensor, uint64_t round, uint64_t turn, size_t bytes,
                              const Answer& answer) {
  UnacknowledgedPushes::Waiters waiters;
  {
    MutexLock lock(&mutex_);
    --under_way_;
    CountForLink(round, bytes, answer.round_trip);
    waiters = unacknowledged_.Take(tensor.key.id(), turn, 1);
    tally_.Acknowledged(bytes, answer.round_trip);
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
  if (encoder_.plan()->report_plan().every_rounds == 0) return;  // nobody calls Take
  link_.Answered(round, options_.clock->Now(), bytes, round_trip);
}

absl::Status PushPipeline::Drain(absl::Duration timeout) {
  MutexLock lock(&mutex_);
  return AwaitIdle(timeout);
}

absl::Status PushPipeline::AwaitIdle(absl::Duration timeout) {
  const auto idle = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return !failed_.ok() || (unacknowledged_.size() == 0 && queue_.idle() && !choosing_);
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
    Close();
  }
  const absl::Cleanup open = [this] { Open(); };
  return use(encoder_.states(), encoder_.probe());
}

void PushPipeline::Close() {
  queue_.Close();
  choosing_ = true;
}

void PushPipeline::Open() {
  MutexLock lock(&mutex_);
  queue_.Open();
  choosing_ = false;
  NotifyOthers();
}

void PushPipeline::Fail(const absl::Status& why) {
  UnacknowledgedPushes::Waiters waiters;
  PushQueue::Works dropped;
  {
    MutexLock lock(&mutex_);
    if (failed_.ok()) failed_ = why;
    dropped = queue_.TakeAll();
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
  return tally_.counts(key);
}

PushedForm PushPipeline::newest_form(const Key& key) const {
  MutexLock lock(&mutex_);
  return tally_.newest_form(key);
}

PushFigures PushPipeline::figures() const {
  MutexLock lock(&mutex_);
  return {.bytes = tally_.bytes(), .queued = queue_.size()};
}

PushTotals PushPipeline::totals() const {
  MutexLock lock(&mutex_);
  return tally_.totals();
}

}  // namespace slimps
