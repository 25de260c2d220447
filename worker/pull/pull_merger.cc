// SPDX-License-Identifier: Apache-2.0
#include "worker/pull/pull_merger.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/base/clock.h"
#include "proto/base/out_of_memory.h"
#include "proto/base/status_macros.h"
#include "proto/base/trace/trace.h"

namespace slimps {

PullMerger::PullMerger(Courier* courier, PullMergerOptions options)
    : courier_(courier), options_(std::move(options)), thread_("pull", [this] { Run(); }) {}

PullMerger::~PullMerger() {
  {
    MutexLock lock(&mutex_);
    stopping_ = true;
    work_.NotifyAll();
    measured_.NotifyAll();
  }
  thread_.Join();
}

void PullMerger::Submit(PullJob job) { SubmitLater(std::move(job))(absl::OkStatus()); }

std::function<void(const absl::Status&)> PullMerger::SubmitLater(PullJob job) {
  auto state = std::make_shared<State>();
  state->job = std::move(job);
  state->pending = state->job.tensor->partitions.size();
  auto request = std::make_shared<Requests>(1, std::move(state));
  return [this, request = std::move(request)](const absl::Status& status) {
    State& submitted = *request->front();
    submitted.status = status;
    // The deadline counts from submission, not from the call of SubmitLater.
    submitted.deadline = options_.clock->Now() + options_.timeout;
    MutexLock lock(&mutex_);
    requests_.splice(requests_.end(), *request);
    work_.NotifyAll();
  };
}

void PullMerger::SubmitWithPush(PullJob job, OutgoingItem push) {
  auto state = std::make_shared<State>();
  state->job = std::move(job);
  state->here = true;
  state->pending = 1;
  state->plain.emplace(state->job.tensor);
  state->plain->UseMemory(state->job.out);
  state->asked_with = {std::nullopt};
  ByServer by_server;
  by_server[state->job.tensor->partitions[0].server].push_back(std::move(push));
  AddRequests(state, &by_server);
  Dispatch(std::move(by_server), Courier::Sender::kWaits);
}

void PullMerger::OnAnswer(Replies& one, Answer answer) {
  Reply& reply = one.front();
  State& state = *reply.state;
  reply.answer = std::move(answer);
  reply.arrived = options_.clock->Now();
  // A caller waits for this pull: handing it to the pull thread would cost a thread switch.
  if (state.here) return Merge(std::move(reply));
  const size_t bytes = reply.answer.payload.size();
  bool full = false;
  {
    MutexLock lock(&mutex_);
    full = bytes_waiting_ > 0 && bytes_waiting_ + bytes > options_.max_bytes_waiting;
    if (!full) bytes_waiting_ += bytes;
  }
  // Merging here keeps this thread from reading more: that back-pressure bounds the bytes that wait
  // for the pull thread.
  if (full && reply.answer.status.ok() && !state.measured_version.has_value()) {
    reply.merged = MergeAnswer(reply);
    reply.answer.payload = Payload();
  }
  MutexLock lock(&mutex_);
  if (full) bytes_waiting_ += reply.answer.payload.size();
  replies_.splice(replies_.end(), one);
  work_.NotifyAll();
}

void PullMerger::Run() {
  for (;;) {
    Requests requests;
    Reply reply;
    {
      MutexLock lock(&mutex_);
      const auto idle = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
        const bool may_measure = waiters_ > 0 && !measuring_ && !to_measure_.empty();
        return requests_.empty() && replies_.empty() && !may_measure;
      };
      while (!stopping_ && idle()) work_.Wait(&mutex_);
      requests.swap(requests_);
      // Every submitted pull has been finished.
      if (stopping_ && requests.empty() && replies_.empty()) return;
      // One reply per turn: new requests leave before the next reply is decoded.
      if (!replies_.empty()) {
        reply = std::move(replies_.front());
        replies_.pop_front();
        bytes_waiting_ -= reply.answer.payload.size();
      }
    }
    const auto fail = [this](const std::bad_alloc& error) { Fail(error); };
    OrTell(fail, [&] {
      SayingWhatFor("pull", "", [&] {
        if (!requests.empty()) SendRequests(std::move(requests));
        if (reply.state != nullptr) Merge(std::move(reply));
        MeasureNext();
      });
    });
  }
}

void PullMerger::Fail(const std::bad_alloc& error) {
  failed_ = DroppedStatus();
  // The pulls that they wait for may have been lost with the exception.
  for (auto& [key, kept] : kept_) kept.waiting.clear();
  to_measure_.clear();
  {
    MutexLock lock(&mutex_);
    left_to_measure_ = 0;
    measured_.NotifyAll();
  }
  if (options_.on_out_of_memory) options_.on_out_of_memory(error);
}

absl::Status PullMerger::Admit(Requests& one) {
  State& state = *one.front();
  const PullJob& job = state.job;
  if (!std::exchange(state.admitted, true)) ++under_way_;
  if (job.kind != PullKind::kPlain) {
    Kept& kept = kept_.try_emplace({job.tensor->key.id(), job.kind}, job.tensor).first->second;
    if (kept.busy) {
      kept.waiting.splice(kept.waiting.end(), one);
      return absl::OkStatus();
    }
    kept.busy = true;
    state.kept = &kept;
  }
  SLIMPS_RETURN_IF_ERROR(Prepare(state));
  if (IsHeld(state)) return absl::OkStatus();
  if (options_.clock->Now() >= state.deadline) {
    return absl::DeadlineExceededError(absl::StrCat("pull of key ", job.tensor->key.typed_name(),
                                                    ": its turn did not come within ",
                                                    absl::FormatDuration(options_.timeout)));
  }
  // Filled last: as long as asked_with is empty, SendRequests finishes the pull without a request.
  for (size_t i = 0; i < state.pending; ++i) state.asked_with.push_back(state.held().version(i));
  return absl::OkStatus();
}

absl::Status PullMerger::Prepare(State& state) {
  const PullJob& job = state.job;
  if (job.kind == PullKind::kPlain) {
    state.plain.emplace(job.tensor);
    state.plain->UseMemory(job.out);
  } else if (job.kind == PullKind::kOnto) {
    state.kept->held.UseMemory(job.out);
  } else {
    const auto make_copy = [&] {
      state.kept->held.UseOwnMemory();
      return absl::OkStatus();
    };
    return OrOutOfMemory(make_copy, "pull", job.tensor->key.typed_name());
  }
  return absl::OkStatus();
}

bool PullMerger::IsHeld(const State& state) const {
  const PullJob& job = state.job;
  if (job.tensor->partitions.empty()) return true;
  if (state.kept == nullptr || !job.is_newest) return false;
  for (size_t i = 0; i < job.tensor->partitions.size(); ++i) {
    if (state.kept->held.version(i) != job.min_version) return false;
  }
  return true;
}

void PullMerger::AddRequests(const std::shared_ptr<State>& state, ByServer* by_server) {
  const TensorPlan& tensor = *state->job.tensor;
  for (size_t i = 0; i < tensor.partitions.size(); ++i) {
    AddRequest(state, i, by_server);
  }
}

void PullMerger::AddRequest(const std::shared_ptr<State>& state, size_t partition,
                            ByServer* by_server) {
  const TensorPlan& tensor = *state->job.tensor;
  const PartitionPlan& plan = tensor.partitions[partition];
  const absl::Duration left = std::max(
      std::min(state->deadline - options_.clock->Now(), options_.timeout), absl::Milliseconds(1));
  wire::PullItem pull;
  pull.mutable_id()->set_key(tensor.key.id());
  pull.mutable_id()->set_partition(static_cast<uint32_t>(partition));
  pull.set_min_version(state->job.min_version);
  pull.set_newest(!state->job.is_newest);
  pull.set_timeout_ms(static_cast<uint64_t>(absl::ToInt64Milliseconds(left)));
  pull.set_priority(state->job.priority);
  pull.set_elements(plan.elements);
  const std::optional<uint64_t> held = state->asked_with[partition];
  pull.set_takes_change(held.has_value());
  pull.set_held_version(held.value_or(0));
  auto reply = std::make_shared<Replies>(1, Reply{.state = state, .partition = partition});
  (*by_server)[plan.server].push_back(
      {.item = std::move(pull),
       .payload = {},
       .key_name = tensor.key.typed_name(),
       .done = [this, reply](Answer answer) { OnAnswer(*reply, std::move(answer)); }});
}

void PullMerger::Dispatch(ByServer by_server, Courier::Sender sender) {
  for (auto& [server, items] : by_server) {
    if (items.empty()) continue;
    courier_->Dispatch(server, std::move(items), Courier::kBeforeAll, sender);
  }
}

void PullMerger::SendRequests(Requests states) {
  states.sort([](const auto& a, const auto& b) { return a->job.priority > b->job.priority; });
  ByServer by_server;
  while (!states.empty()) {
    Requests one;
    one.splice(one.begin(), states, states.begin());
    const std::shared_ptr<State> state = one.front();
    if (state->status.ok()) state->status = failed_;
    if (state->status.ok()) state->status = Admit(one);
    if (one.empty()) continue;  // moved to those that wait for another pull
    if (state->status.ok() && !state->asked_with.empty()) {
      AddRequests(state, &by_server);
    } else {
      Finish(state);
    }
  }
  Dispatch(std::move(by_server));
}

void PullMerger::Merge(Reply reply) {
  State& state = *reply.state;
  if (state.measured_version.has_value()) return Gauge(state, reply);
  absl::Status status = reply.answer.status;
  if (reply.merged.has_value()) {
    status = *std::move(reply.merged);
  } else if (status.ok()) {
    status = MergeAnswer(reply);
  }
  if (state.status.ok()) state.status = status;
  if (--state.pending == 0) Finish(reply.state);
}

absl::Status PullMerger::MergeAnswer(const Reply& reply) {
  State& state = *reply.state;
  const size_t partition = reply.partition;
  const Answer& answer = reply.answer;
  const TensorPlan& tensor = *state.job.tensor;
  const auto where = [&] {
    return absl::StrCat("pull of key ", tensor.key.typed_name(), " partition ", partition,
                        " from server ", tensor.partitions[partition].server, ": ");
  };
  if (answer.pull.version() < state.job.min_version) {
    return absl::FailedPreconditionError(absl::StrCat(
        where(), "expected version ", state.job.min_version, ", got ", answer.pull.version()));
  }
  const TraceSpan span(
      TraceStage::kDecode,
      {tensor.key.typed_name(), static_cast<uint32_t>(partition), answer.pull.version()});
  const SteadyTime start = options_.clock->Now();
  const absl::Status merged = state.held().Merge(partition, answer.pull, answer.payload.bytes());
  if (!merged.ok()) {
    return absl::Status(merged.code(), absl::StrCat(where(), std::string(merged.message())));
  }
  MutexLock lock(&mutex_);
  totals_.payload_bytes += answer.payload.size();
  totals_.changes += answer.pull.is_change();
  totals_.decode += options_.clock->Now() - start;
  return absl::OkStatus();
}

void PullMerger::Finish(const std::shared_ptr<State>& state) {
  const PullJob& job = state->job;
  if (job.kind == PullKind::kThroughCopy && state->status.ok()) {
    const std::span<const float> values = state->held().values();
    std::copy(values.begin(), values.end(), job.out.begin());
  }
  Requests next;
  if (state->kept != nullptr) {
    Kept& kept = *state->kept;
    kept.busy = false;
    if (!kept.waiting.empty()) next.splice(next.begin(), kept.waiting, kept.waiting.begin());
  }
  if (state->admitted) --under_way_;
  // Counted before `done` runs: a caller that then waits for measurements waits for this one too.
  if (state->status.ok() && !state->here && !state->asked_with.empty()) Measure(state);
  state->job.done(state->status);
  if (next.empty()) return;
  // Queued instead of sent from here: pulls that need no request would finish recursively, one
  // inside the other, to any depth.
  MutexLock lock(&mutex_);
  requests_.splice(requests_.begin(), next);
}

PullTotals PullMerger::totals() const {
  MutexLock lock(&mutex_);
  return totals_;
}

}  // namespace slimps
