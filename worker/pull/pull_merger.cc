// SPDX-License-Identifier: Apache-2.0
#include "worker/pull/pull_merger.h"

#include <algorithm>
#include <span>
#include <utility>

#include "absl/strings/str_cat.h"
#include "compress/codec/work_arena.h"
#include "proto/base/status_macros.h"
#include "worker/courier/coalescer.h"

namespace slimps {

PullMerger::PullMerger(Courier* courier, PullMergerOptions options)
    : courier_(courier),
      options_(std::move(options)),
      threads_("pull", static_cast<size_t>(WorkArena(options_.threads).threads()),
               [this] { Run(); }) {}

PullMerger::~PullMerger() {
  {
    MutexLock lock(&mutex_);
    stopping_ = true;
    work_.NotifyAll();
    measured_.NotifyAll();
  }
  threads_.Join();
}

void PullMerger::Submit(PullJob job) { SubmitLater(std::move(job))(absl::OkStatus()); }

std::function<void(const absl::Status&)> PullMerger::SubmitLater(PullJob job) {
  auto request = std::make_shared<Pulls>(1, std::make_shared<PullUnderWay>(std::move(job)));
  return [this, request = std::move(request)](const absl::Status& status) {
    PullUnderWay& submitted = *request->front();
    submitted.status = status;
    // The deadline counts from submission, not from the call of SubmitLater.
    submitted.deadline = options_.clock->Now() + options_.timeout;
    MutexLock lock(&mutex_);
    requests_.splice(requests_.end(), *request);
    work_.NotifyOne();
  };
}

void PullMerger::SubmitWithPush(PullJob job, OutgoingItem push) {
  auto pull = std::make_shared<PullUnderWay>(std::move(job));
  pull->here = true;
  // A plain pull needs no memory of the merger, so nothing can be refused.
  (void)pull->UseMemory(/*kept=*/nullptr);
  pull->NoteHeld();
  ByServer by_server;
  by_server[pull->job.tensor->partitions[0].server].push_back(std::move(push));
  AddRequests(pull, &by_server);
  Dispatch(std::move(by_server), Courier::Sender::kWaits);
}

void PullMerger::ForgetVersions() {
  MutexLock lock(&turns_mutex_);
  turns_.ForgetVersions();
}

void PullMerger::Run() {
  for (;;) {
    Reply reply;
    {
      MutexLock lock(&mutex_);
      const auto idle = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
        const bool may_measure = waiters_ > 0 && !measuring_ && !to_measure_.empty();
        return requests_.empty() && replies_.empty() && !may_measure;
      };
      while (!stopping_ && idle()) work_.Wait(&mutex_);
      // Every submitted pull has been finished.
      if (stopping_ && requests_.empty() && replies_.empty()) return;
      // One reply per turn: new requests leave before the next reply is decoded.
      if (requests_.empty() && !replies_.empty()) {
        reply = std::move(replies_.front());
        replies_.pop_front();
        bytes_waiting_ -= reply.answer.payload.size();
      }
    }
    const auto fail = [this](const std::bad_alloc& error) { Fail(error); };
    OrTell(fail, [&] {
      SayingWhatFor("pull", "", [&] {
        if (reply.pull != nullptr && IsToMerge(reply)) reply.merged = Merge(reply);
        MutexLock turns(&turns_mutex_);
        Pulls requests;
        {
          // Taken within the turns, so that the pulls of a key keep their order.
          MutexLock lock(&mutex_);
          requests.swap(requests_);
        }
        if (!requests.empty()) SendRequests(std::move(requests));
        if (reply.pull != nullptr) Take(std::move(reply));
        MeasureNext();
      });
    });
  }
}

void PullMerger::Fail(const std::bad_alloc& error) {
  {
    MutexLock lock(&turns_mutex_);
    failed_ = DroppedStatus();
    // The pulls that they wait for may have been lost with the exception.
    turns_.Clear();
  }
  {
    MutexLock lock(&mutex_);
    to_measure_.clear();
    measuring_ = false;
    measured_.NotifyAll();
  }
  if (options_.on_out_of_memory) options_.on_out_of_memory(error);
}

// ---- requests -----------------------------------------------------------------------------------

void PullMerger::SendRequests(Pulls pulls) {
  pulls.sort([](const auto& a, const auto& b) { return a->job.priority > b->job.priority; });
  ByServer by_server;
  while (!pulls.empty()) {
    Pulls one;
    one.splice(one.begin(), pulls, pulls.begin());
    const std::shared_ptr<PullUnderWay> pull = one.front();
    if (pull->status.ok()) pull->status = failed_;
    if (pull->status.ok()) pull->status = Admit(one);
    if (one.empty()) continue;  // moved to those that wait for another pull
    if (pull->status.ok() && !pull->asked_with.empty()) {
      AddRequests(pull, &by_server);
    } else {
      Finish(pull);
    }
  }
  Dispatch(std::move(by_server));
}

absl::Status PullMerger::Admit(Pulls& one) {
  PullUnderWay& pull = *one.front();
  if (!std::exchange(pull.admitted, true)) ++under_way_;
  HeldWeights* kept = nullptr;
  if (pull.job.kind != PullKind::kPlain) {
    kept = turns_.Take(one);
    if (kept == nullptr) return absl::OkStatus();
  }
  SLIMPS_RETURN_IF_ERROR(pull.UseMemory(kept));
  if (pull.IsHeld()) return absl::OkStatus();
  if (options_.clock->Now() >= pull.deadline) {
    return absl::DeadlineExceededError(
        absl::StrCat("pull of key ", pull.job.tensor->key.typed_name(),
                     ": its turn did not come within ", absl::FormatDuration(options_.timeout)));
  }
  // Last: as long as asked_with is empty, SendRequests finishes the pull without a request.
  pull.NoteHeld();
  return absl::OkStatus();
}

void PullMerger::AddRequests(const std::shared_ptr<PullUnderWay>& pull, ByServer* by_server) {
  for (size_t i = 0; i < pull->job.tensor->partitions.size(); ++i) {
    AddRequest({.pull = pull, .partition = i}, by_server);
  }
}

void PullMerger::AddRequest(Reply reply, ByServer* by_server) {
  const PullUnderWay& pull = *reply.pull;
  const TensorPlan& tensor = *pull.job.tensor;
  const absl::Duration left = std::max(
      std::min(pull.deadline - options_.clock->Now(), options_.timeout), absl::Milliseconds(1));
  wire::PullItem item = pull.Request(reply.partition, left);
  item.set_state_tensor(reply.state_tensor);
  const uint32_t server = tensor.partitions[reply.partition].server;
  auto waiting = std::make_shared<Replies>();
  waiting->push_back(std::move(reply));
  (*by_server)[server].push_back(
      {.item = std::move(item),
       .payload = {},
       .key_name = tensor.key.typed_name(),
       .done = [this, waiting](Answer answer) { OnAnswer(*waiting, std::move(answer)); }});
}

void PullMerger::Dispatch(ByServer by_server, Courier::Sender sender) {
  Coalescer batches;
  const auto send = [&](std::vector<Batch> full) {
    for (Batch& batch : full) {
      courier_->Dispatch(batch.server, std::move(batch.items), batch.priority, sender);
    }
  };
  for (auto& [server, items] : by_server) {
    for (OutgoingItem& item : items) {
      send(batches.Add(server, std::move(item), Courier::kBeforeAll));
    }
  }
  send(batches.TakeAll());
}

// ---- answers ------------------------------------------------------------------------------------

void PullMerger::OnAnswer(Replies& one, Answer answer) {
  Reply& reply = one.front();
  reply.answer = std::move(answer);
  reply.arrived = options_.clock->Now();
  // A caller waits for this pull: handing it to a pull thread would cost a thread switch.
  if (reply.pull->here) {
    if (IsToMerge(reply)) reply.merged = Merge(reply);
    return Take(std::move(reply));
  }
  const size_t bytes = reply.answer.payload.size();
  bool full = false;
  {
    MutexLock lock(&mutex_);
    full = bytes_waiting_ > 0 && bytes_waiting_ + bytes > options_.max_bytes_waiting;
    if (!full) bytes_waiting_ += bytes;
  }
  // Merging here keeps this thread from reading more: that back-pressure bounds the bytes that wait
  // for the pull threads.
  if (full && IsToMerge(reply)) {
    reply.merged = Merge(reply);
    reply.answer.payload = Payload();
  }
  MutexLock lock(&mutex_);
  if (full) bytes_waiting_ += reply.answer.payload.size();
  replies_.splice(replies_.end(), one);
  work_.NotifyOne();
}

void PullMerger::Take(Reply reply) {
  PullUnderWay& pull = *reply.pull;
  if (pull.measured.has_value()) return TakeMeasured(pull, reply);
  const absl::Status status =
      reply.merged.has_value() ? *std::move(reply.merged) : reply.answer.status;
  if (pull.status.ok()) pull.status = status;
  if (status.ok()) RequestState(reply);
  if (--pull.pending == 0) Finish(reply.pull);
}

void PullMerger::RequestState(const Reply& reply) {
  PullUnderWay& pull = *reply.pull;
  if (options_.momentum == nullptr || reply.state_tensor != 0 ||
      !options_.momentum->Lacks(*pull.job.tensor, reply.partition, reply.answer.pull)) {
    return;
  }
  ByServer by_server;
  for (const uint32_t number : SharedMomentum::kStateTensors) {
    AddRequest({.pull = reply.pull, .partition = reply.partition, .state_tensor = number},
               &by_server);
    ++pull.pending;
  }
  Dispatch(std::move(by_server));
}

absl::Status PullMerger::Merge(const Reply& reply) {
  const Answer& answer = reply.answer;
  const SteadyTime start = options_.clock->Now();
  if (reply.state_tensor != 0) {
    SLIMPS_RETURN_IF_ERROR(options_.momentum->Put(*reply.pull->job.tensor, reply.partition,
                                                  answer.pull, answer.payload.bytes()));
  } else {
    SLIMPS_RETURN_IF_ERROR(reply.pull->Merge(reply.partition, answer, options_.momentum));
  }
  MutexLock lock(&mutex_);
  totals_.payload_bytes += answer.payload.size();
  totals_.changes += answer.pull.is_change();
  if (reply.state_tensor == 0) totals_.elements += answer.pull.elements();
  figures_.bytes[answer.pull.format()] += answer.payload.size();
  bytes_of_keys_[reply.pull->job.tensor->key.id()] += answer.payload.size();
  totals_.decode += options_.clock->Now() - start;
  return absl::OkStatus();
}

void PullMerger::Finish(const std::shared_ptr<PullUnderWay>& pull) {
  const PullJob& job = pull->job;
  if (job.kind == PullKind::kThroughCopy && pull->status.ok()) {
    const std::span<const float> values = pull->held->values();
    std::copy(values.begin(), values.end(), job.out.begin());
  }
  Pulls next;
  if (pull->has_turn) next = turns_.Pass(job);
  if (pull->admitted) --under_way_;
  // Queued before `done` runs: a caller that then waits for measurements waits for this one too.
  if (pull->status.ok() && !pull->here && !pull->asked_with.empty()) Measure(*pull);
  job.done(pull->status);
  if (next.empty()) return;
  // Queued instead of sent from here: pulls that need no request would finish recursively, one
  // inside the other, to any depth.
  MutexLock lock(&mutex_);
  requests_.splice(requests_.begin(), next);
}

// ---- measured pulls -----------------------------------------------------------------------------

void PullMerger::Measure(const PullUnderWay& pulled) {
  const TensorPlan& tensor = *pulled.job.tensor;
  const uint64_t version = pulled.job.min_version;
  if (version == 0) return;
  if (options_.measures == nullptr || !options_.measures(tensor, version)) return;
  auto pull = std::make_shared<PullUnderWay>(
      PullJob{.tensor = &tensor, .min_version = version, .priority = pulled.job.priority});
  // The server answers in the same form only if asked with the same held versions as the first
  // time.
  pull->asked_with = pulled.asked_with;
  pull->measured.emplace(&tensor, version, options_.clock);
  MutexLock lock(&mutex_);
  to_measure_.push_back(std::move(pull));
}

void PullMerger::MeasureNext() {
  Pulls one;
  {
    MutexLock lock(&mutex_);
    if (measuring_ || to_measure_.empty() || (under_way_ > 0 && waiters_ == 0)) return;
    measuring_ = true;
    one.splice(one.begin(), to_measure_, to_measure_.begin());
  }
  ByServer by_server;
  AddRequests(one.front(), &by_server);
  Dispatch(std::move(by_server));
}

void PullMerger::TakeMeasured(PullUnderWay& pull, const Reply& reply) {
  const PullJob& job = pull.job;
  const bool has_codec = options_.change_codec != nullptr;
  pull.measured->Add(reply.partition, reply.answer, reply.arrived,
                     has_codec ? options_.change_codec(*job.tensor, job.min_version) : "");
  if (--pull.pending > 0) return;
  if (const auto result = pull.measured->result()) options_.on_measured(*result);
  MutexLock lock(&mutex_);
  measuring_ = false;
  if (!IsMeasuring()) measured_.NotifyAll();
}

void PullMerger::AwaitMeasured(absl::Duration timeout) {
  MutexLock lock(&mutex_);
  if (!IsMeasuring()) return;
  ++waiters_;
  work_.NotifyOne();
  const auto done = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return stopping_ || !IsMeasuring();
  };
  // A measurement that this wait misses goes on.
  (void)measured_.Await(&mutex_, timeout, done);
  --waiters_;
}

PullTotals PullMerger::totals() const {
  MutexLock lock(&mutex_);
  return totals_;
}

PullFigures PullMerger::figures() const {
  MutexLock lock(&mutex_);
  PullFigures figures = figures_;
  figures.queued = requests_.size() + replies_.size();
  return figures;
}

std::map<KeyId, uint64_t> PullMerger::bytes_of_keys() const {
  MutexLock lock(&mutex_);
  return bytes_of_keys_;
}

}  // namespace slimps
