#include "worker/pull_merger.h"

#include <pthread.h>

#include <algorithm>
#include <new>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "compress/format/format.h"
#include "proto/base/trace.h"

namespace slimps {
namespace {

// What an answer should be where its version was made with `change_codec`.
bool IsAsAgreed(const std::string& change_codec, const wire::PullReplyItem& answer) {
  if (change_codec.empty() || change_codec == "none") return !answer.is_change();
  if (change_codec == "fp16") return !answer.is_change() && answer.format() == wire::RAW_F16;
  if (change_codec == "bf16") return !answer.is_change() && answer.format() == wire::RAW_BF16;
  return answer.is_change();
}

}  // namespace

// Owned by the pull thread once its requests are out.
struct PullMerger::State {
  PullJob job;
  absl::Time deadline = absl::InfiniteFuture();
  bool here = false;   // merged by who brings the answer
  size_t pending = 0;  // partitions
  bool admitted = false;
  absl::Status status;
  Kept* kept = nullptr;              // of pulls that take changes
  std::optional<HeldWeights> plain;  // of the others
  std::vector<std::optional<uint64_t>>
      asked_with;  // versions held when it was asked for, by partition

  HeldWeights& held() { return kept != nullptr ? kept->held : *plain; }

  // Of a pull that is measured and thrown away: its version, and what was seen so far.
  std::optional<uint64_t> measured_version;
  bool as_agreed = true;
  absl::Time first_byte = absl::InfiniteFuture();
  absl::Time last_answer = absl::InfinitePast();
  absl::Duration coding;
};

PullMerger::PullMerger(Courier* courier, PullMergerOptions options)
    : courier_(courier), options_(std::move(options)), thread_([this] { Run(); }) {}

PullMerger::~PullMerger() {
  {
    MutexLock lock(&mutex_);
    stopping_ = true;
    work_.NotifyAll();
    measured_.NotifyAll();
  }
  thread_.join();
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
    submitted.deadline = absl::Now() + options_.timeout;
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

void PullMerger::OnAnswer(Reply reply) {
  State& state = *reply.state;
  if (state.here) return Merge(std::move(reply));
  const size_t bytes = reply.answer.payload.size();
  bool full = false;
  {
    MutexLock lock(&mutex_);
    full = bytes_waiting_ > 0 && bytes_waiting_ + bytes > options_.max_bytes_waiting;
    if (!full) bytes_waiting_ += bytes;
  }
  if (full && reply.answer.status.ok() && !state.measured_version.has_value()) {
    reply.merged = MergePartition(state, reply.partition, reply.answer);
    reply.answer.payload = Payload();
  }
  MutexLock lock(&mutex_);
  if (full) bytes_waiting_ += reply.answer.payload.size();
  replies_.push_back(std::move(reply));
  work_.NotifyAll();
}

void PullMerger::Run() {
  pthread_setname_np(pthread_self(), "pull");
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
      if (stopping_ && requests.empty() && replies_.empty()) return;  // nobody is left waiting
      if (!replies_.empty()) {
        reply = std::move(replies_.front());
        replies_.pop_front();
        bytes_waiting_ -= reply.answer.payload.size();
      }
    }
    if (!requests.empty()) SendRequests(std::move(requests));
    if (reply.state != nullptr) Merge(std::move(reply));
    MeasureNext();
  }
}

void PullMerger::AwaitMeasured(absl::Duration timeout) {
  MutexLock lock(&mutex_);
  if (left_to_measure_ == 0) return;
  ++waiters_;
  work_.NotifyAll();
  const auto done = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return stopping_ || left_to_measure_ == 0;
  };
  (void)measured_.Await(&mutex_, timeout, done);  // what comes too late is measured all the same
  --waiters_;
}

bool PullMerger::Admit(Requests& one) {
  const std::shared_ptr<State>& state = one.front();
  if (!state->status.ok()) {
    Finish(state);
    return false;
  }
  const PullJob& job = state->job;
  if (!std::exchange(state->admitted, true)) ++under_way_;
  if (job.kind != PullKind::kPlain) {
    Kept& kept = kept_.try_emplace({job.tensor->key.id(), job.kind}, job.tensor).first->second;
    if (kept.busy) {
      kept.waiting.splice(kept.waiting.end(), one);
      return false;
    }
    kept.busy = true;
    state->kept = &kept;
  }
  state->status = Prepare(*state);
  if (state->status.ok() && !IsHeld(*state)) {
    if (absl::Now() < state->deadline) return true;
    state->status = absl::DeadlineExceededError(
        absl::StrCat("pull of key ", job.tensor->key.typed_name(),
                     ": its turn did not come within ", absl::FormatDuration(options_.timeout)));
  }
  Finish(state);
  return false;
}

absl::Status PullMerger::Prepare(State& state) {
  const PullJob& job = state.job;
  try {
    if (job.kind == PullKind::kPlain) {
      state.plain.emplace(job.tensor);
      state.plain->UseMemory(job.out);
    } else if (job.kind == PullKind::kOnto) {
      state.kept->held.UseMemory(job.out);
    } else {
      state.kept->held.UseOwnMemory();
    }
  } catch (const std::bad_alloc&) {
    return absl::ResourceExhaustedError(absl::StrCat("pull of key ", job.tensor->key.typed_name(),
                                                     ": out of memory for a copy of it"));
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
  const absl::Duration left =
      std::max(std::min(state->deadline - absl::Now(), options_.timeout), absl::Milliseconds(1));
  for (size_t i = 0; i < tensor.partitions.size(); ++i) {
    wire::PullItem pull;
    pull.mutable_id()->set_key(tensor.key.id());
    pull.mutable_id()->set_partition(static_cast<uint32_t>(i));
    pull.set_min_version(state->job.min_version);
    pull.set_timeout_ms(static_cast<uint64_t>(absl::ToInt64Milliseconds(left)));
    pull.set_priority(state->job.priority);
    pull.set_elements(tensor.partitions[i].elements);
    const std::optional<uint64_t> held = state->asked_with[i];
    pull.set_takes_change(held.has_value());
    pull.set_held_version(held.value_or(0));
    OutgoingItem item{
        .item = std::move(pull), .payload = {}, .key_name = tensor.key.typed_name(), .done = {}};
    item.done = [this, state, i](Answer answer) {
      OnAnswer(Reply{state, i, std::move(answer), absl::Now(), std::nullopt});
    };
    (*by_server)[tensor.partitions[i].server].push_back(std::move(item));
  }
}

void PullMerger::Dispatch(ByServer by_server, Courier::Sender sender) {
  for (auto& [server, items] : by_server) {
    courier_->Dispatch(server, std::move(items), Courier::kBeforeAll, sender);
  }
}

void PullMerger::SendRequests(Requests states) {
  states.sort([](const auto& a, const auto& b) { return a->job.priority > b->job.priority; });
  ByServer by_server;
  while (!states.empty()) {
    Requests one;
    one.splice(one.begin(), states, states.begin());
    if (!Admit(one)) continue;
    const std::shared_ptr<State>& state = one.front();
    for (size_t i = 0; i < state->pending; ++i) {
      state->asked_with.push_back(state->held().version(i));
    }
    AddRequests(state, &by_server);
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
    status = MergePartition(state, reply.partition, reply.answer);
  }
  if (state.status.ok()) state.status = status;
  if (--state.pending == 0) Finish(reply.state);
}

absl::Status PullMerger::MergePartition(State& state, size_t partition, const Answer& answer) {
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
  const absl::Time start = absl::Now();
  const absl::Status merged = state.held().Merge(partition, answer.pull, answer.payload.bytes());
  if (!merged.ok()) {
    return absl::Status(merged.code(), absl::StrCat(where(), std::string(merged.message())));
  }
  MutexLock lock(&mutex_);
  totals_.payload_bytes += answer.payload.size();
  totals_.changes += answer.pull.is_change();
  totals_.decode += absl::Now() - start;
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
  // Before anybody is told: who then waits for measurements waits for this one too.
  if (state->status.ok() && !state->here && !state->asked_with.empty()) Measure(state);
  job.done(state->status);
  if (next.empty()) return;
  // Not from here: what needs no answer would finish one within the other, however many wait.
  MutexLock lock(&mutex_);
  requests_.splice(requests_.begin(), next);
}

void PullMerger::Measure(const std::shared_ptr<State>& pulled) {
  const TensorPlan& tensor = *pulled->job.tensor;
  const uint64_t version = pulled->job.min_version;
  if (version == 0 || tensor.partitions.empty()) return;
  if (options_.measures == nullptr || !options_.measures(tensor, version)) return;
  auto state = std::make_shared<State>();
  state->job = {.tensor = &tensor, .min_version = version, .priority = pulled->job.priority};
  state->pending = tensor.partitions.size();
  state->asked_with = pulled->asked_with;
  state->measured_version = version;
  to_measure_.push_back(std::move(state));
  MutexLock lock(&mutex_);
  ++left_to_measure_;
}

void PullMerger::MeasureNext() {
  if (measuring_ || to_measure_.empty()) return;
  {
    MutexLock lock(&mutex_);
    if (under_way_ > 0 && waiters_ == 0) return;
  }
  measuring_ = true;
  ByServer by_server;
  AddRequests(std::exchange(to_measure_.front(), nullptr), &by_server);
  to_measure_.pop_front();
  Dispatch(std::move(by_server));
}

void PullMerger::Gauge(State& state, const Reply& reply) {
  const TensorPlan& tensor = *state.job.tensor;
  const uint64_t version = *state.measured_version;
  const Answer& answer = reply.answer;
  const size_t elements = tensor.partitions[reply.partition].elements;
  const auto format = static_cast<PayloadFormat>(answer.pull.format());
  state.as_agreed &=
      answer.status.ok() && answer.pull.version() == version &&
      answer.round_trip > absl::ZeroDuration() && answer.pull.elements() == elements &&
      IsAsAgreed(options_.change_codec == nullptr ? "" : options_.change_codec(tensor, version),
                 answer.pull) &&
      ValidatePayload(format, answer.payload.bytes(), elements).ok();
  if (state.as_agreed) {
    state.first_byte = std::min(state.first_byte, reply.arrived - answer.round_trip);
    state.last_answer = std::max(state.last_answer, reply.arrived);
  }
  if (state.as_agreed && answer.pull.is_change()) {
    std::vector<float> scratch(kBlockElements);
    const absl::Time start = absl::Now();
    for (size_t first = 0; first < elements; first += kBlockElements) {
      DecodeAdd(format, answer.payload.bytes(), elements, first,
                std::span(scratch).first(std::min(kBlockElements, elements - first)));
    }
    state.coding +=
        absl::Nanoseconds(static_cast<int64_t>(answer.pull.encode_ns())) + (absl::Now() - start);
  }
  if (--state.pending > 0) return;
  measuring_ = false;
  if (state.as_agreed) {
    options_.on_measured({.tensor = &tensor,
                          .version = version,
                          .communication = state.last_answer - state.first_byte,
                          .coding = state.coding});
  }
  MutexLock lock(&mutex_);
  if (--left_to_measure_ == 0) measured_.NotifyAll();
}

PullTotals PullMerger::totals() const {
  MutexLock lock(&mutex_);
  return totals_;
}

}  // namespace slimps
