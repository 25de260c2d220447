// SPDX-License-Identifier: Apache-2.0
#include "worker/phases/phased_pushes.h"

#include <algorithm>
#include <span>

#include "absl/strings/str_cat.h"
#include "compress/codec/phases.h"
#include "compress/codec/state/state_store.h"
#include "compress/codec/work_arena.h"
#include "proto/base/buffer.h"
#include "proto/base/status_copy.h"
#include "proto/base/status_macros.h"
#include "proto/base/trace/trace.h"
#include "proto/net/send_priority.h"

namespace slimps {

// One tensor's push of one round. Owned by the phases thread at its step.
struct PhasedPushes::Exchange {
  Exchange(Tensor* of, PushJob pushed) : tensor(of), job(std::move(pushed)) {}

  const TensorPlan& plan() const { return *tensor->plan; }

  Tensor* const tensor;
  PushJob job;
  const Codec* codec = nullptr;  // set by Begin, as is all below
  PhasedInput input;
  std::vector<PhasedPart> parts;
  std::vector<CodecState*> states;  // by partition; empty if the worker contributes nothing
  std::unique_ptr<PhasedRun> run;
  std::vector<AuxiliaryShape> shapes;   // what each phase combines
  std::vector<const TensorPlan*> keys;  // by phase
  size_t phase = 0;                     // the next to be sent or answered
  bool is_pushed = false;
  absl::Duration encode;
};

PhasedPushes::PhasedPushes(Courier* courier, PushPipeline* pushes, PhasedPushesOptions options)
    : pushes_(pushes),
      options_(std::move(options)),
      exchange_(courier, {.timeout = options_.exchange.timeout,
                          .checksums = options_.exchange.checksums,
                          .on_passed =
                              [pushes](uint64_t round, size_t bytes, absl::Duration took) {
                                pushes->NotePassed(round, bytes, took);
                              }}),
      threads_("phases", static_cast<size_t>(WorkArena(options_.threads).threads()),
               [this] { Run(); }) {}

PhasedPushes::~PhasedPushes() {
  Fail(absl::CancelledError("the store was closed"));
  {
    MutexLock lock(&mutex_);
    stopping_ = true;
    work_.NotifyAll();
  }
  threads_.Join();
}

void PhasedPushes::AddTensor(const TensorPlan* tensor, std::vector<PhaseKey> keys) {
  MutexLock lock(&mutex_);
  tensors_.try_emplace(tensor->key.id(), Tensor{.plan = tensor, .keys = std::move(keys)});
}

bool PhasedPushes::Has(const TensorPlan& tensor) const {
  MutexLock lock(&mutex_);
  return tensors_.contains(tensor.key.id());
}

std::vector<const TensorPlan*> PhasedPushes::MemoryKeys() const {
  MutexLock lock(&mutex_);
  std::vector<const TensorPlan*> keys;
  for (const auto& [id, tensor] : tensors_) {
    for (const PhaseKey& key : tensor.keys) {
      if (key.keeps_memory) keys.push_back(&key.plan);
    }
  }
  return keys;
}

// ---- the queue ----------------------------------------------------------------------------------

absl::Status PhasedPushes::Submit(PushJob job) {
  job.submitted = options_.clock->Now();
  MutexLock lock(&mutex_);
  SLIMPS_RETURN_IF_ERROR(failed_);
  Tensor& tensor = tensors_.at(job.tensor->key.id());
  if (tensor.busy) {
    tensor.waiting.push_back(std::move(job));
  } else {
    Start(&tensor, std::move(job));
  }
  ++unfinished_;
  return absl::OkStatus();
}

void PhasedPushes::Start(Tensor* tensor, PushJob job) {
  Queue({.exchange = std::make_shared<Exchange>(tensor, std::move(job))});
  tensor->busy = true;
}

void PhasedPushes::Queue(Step step) {
  const PushJob& job = step.exchange->job;
  const auto turn = std::pair(-SendPriority(job.round, job.priority), next_sequence_++);
  queue_.emplace(turn, std::move(step));
  work_.NotifyOne();
}

void PhasedPushes::End(const Exchange& exchange) {
  MutexLock lock(&mutex_);
  encode_ += exchange.encode;
  if (!failed_.ok()) return;
  --unfinished_;
  changed_.NotifyAll();
  Tensor& tensor = *exchange.tensor;
  tensor.busy = false;
  if (tensor.waiting.empty()) return;
  PushJob next = std::move(tensor.waiting.front());
  tensor.waiting.pop_front();
  Start(&tensor, std::move(next));
}

uint64_t PhasedPushes::exchanged(const TensorPlan& tensor) const {
  MutexLock lock(&mutex_);
  const auto found = tensors_.find(tensor.key.id());
  return found == tensors_.end() ? 0 : found->second.exchanged;
}

void PhasedPushes::ResumeAt(const TensorPlan& tensor, uint64_t exchanged) {
  MutexLock lock(&mutex_);
  const auto found = tensors_.find(tensor.key.id());
  if (found != tensors_.end()) found->second.exchanged = exchanged;
}

void PhasedPushes::Run() {
  for (;;) {
    Step step;
    {
      MutexLock lock(&mutex_);
      while (!stopping_ && (paused_ > 0 || queue_.empty())) work_.Wait(&mutex_);
      if (stopping_) return;
      ++working_;
      step = std::move(queue_.begin()->second);
      queue_.erase(queue_.begin());
    }
    const std::string name = step.exchange->plan().key.typed_name();
    OrTell(options_.on_out_of_memory, [&] {
      SayingWhatFor("push", name, [&] {
        const absl::Status advanced = Advance(step.exchange, std::move(step.answer));
        if (!advanced.ok()) {
          options_.on_error(Prefixed(advanced, absl::StrCat("push of key ", name)));
        }
        // What waits for company must leave: no later work may come to fill the message up.
        if (QueueIsEmpty()) exchange_.Flush();
      });
    });
    MutexLock lock(&mutex_);
    --working_;
    changed_.NotifyAll();
  }
}

bool PhasedPushes::QueueIsEmpty() const {
  MutexLock lock(&mutex_);
  return queue_.empty();
}

absl::Status PhasedPushes::AwaitIdle(absl::Duration timeout) {
  const auto idle = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return !failed_.ok() || (unfinished_ == 0 && working_ == 0);
  };
  if (!changed_.Await(&mutex_, timeout, idle)) {
    return absl::DeadlineExceededError(absl::StrCat(
        unfinished_, " pushes wait for the other workers' pushes of their rounds after ",
        absl::FormatDuration(timeout)));
  }
  return failed_;
}

absl::Status PhasedPushes::Drain(absl::Duration timeout) {
  MutexLock lock(&mutex_);
  return AwaitIdle(timeout);
}

absl::Status PhasedPushes::WhileIdle(absl::Duration timeout,
                                     const std::function<absl::Status()>& use) {
  {
    MutexLock lock(&mutex_);
    SLIMPS_RETURN_IF_ERROR(AwaitIdle(timeout));
    ++paused_;
  }
  const absl::Status used = use();
  MutexLock lock(&mutex_);
  --paused_;
  work_.NotifyAll();
  return used;
}

void PhasedPushes::Fail(const absl::Status& why) {
  std::map<std::pair<int64_t, uint64_t>, Step> dropped;
  MutexLock lock(&mutex_);
  if (failed_.ok()) failed_ = why;
  dropped.swap(queue_);
  for (auto& [id, tensor] : tensors_) tensor.waiting.clear();
  changed_.NotifyAll();
}

PhasedPushes::Totals PhasedPushes::totals() const {
  MutexLock lock(&mutex_);
  return {.exchanged = exchange_.totals(), .encode = encode_};
}

// ---- one exchange -------------------------------------------------------------------------------

absl::Status PhasedPushes::Advance(const std::shared_ptr<Exchange>& exchange,
                                   std::optional<Combined> answer) {
  Exchange& one = *exchange;
  if (!answer.has_value()) {
    SLIMPS_ASSIGN_OR_RETURN(const Codec* const codec,
                            pushes_->AwaitCodec(one.plan(), one.job.round));
    if (codec->phases() == nullptr) {
      SLIMPS_RETURN_IF_ERROR(pushes_->Submit(std::move(one.job)));
      // The next round may take phases here: the residual must be as this round left it.
      pushes_->WhenAcknowledged(one.plan(),
                                [this, exchange](const absl::Status&) { End(*exchange); });
      return absl::OkStatus();
    }
    SLIMPS_RETURN_IF_ERROR(Begin(one, *codec));
  } else {
    SLIMPS_RETURN_IF_ERROR(answer->status);
    const SteadyTime start = options_.clock->Now();
    SLIMPS_RETURN_IF_ERROR(one.run->Take(one.phase++, answer->values, answer->contributors));
    one.encode += options_.clock->Now() - start;
  }
  if (!one.is_pushed && one.run->may_write()) SLIMPS_RETURN_IF_ERROR(SendPayloads(one));
  if (one.phase < one.keys.size()) return SendPhase(exchange);
  End(one);
  return absl::OkStatus();
}

absl::Status PhasedPushes::Begin(Exchange& exchange, const Codec& codec) {
  const TensorPlan& plan = exchange.plan();
  StateStore& states = *pushes_->states();
  exchange.codec = &codec;
  SLIMPS_RETURN_IF_ERROR(FindKeys(exchange));
  SLIMPS_RETURN_IF_ERROR(pushes_->Look(exchange.job));
  ++exchange.tensor->exchanged;
  exchange.input = {.shape = plan.shape(),
                    .grad_scale = options_.grad_scale,
                    .context = {.key = plan.key.id(),
                                .round = exchange.job.round,
                                .worker = options_.worker,
                                .layer = static_cast<LayerKind>(plan.info.layer())}};
  for (const PartitionPlan& part : plan.partitions) {
    exchange.parts.push_back({.elements = part.elements});
  }
  for (size_t i = 0; i < exchange.job.grad_bufs.size(); ++i) {
    EncodeInput part{.gradient = exchange.job.grad_bufs[i]->floats()};
    SLIMPS_ASSIGN_OR_RETURN(CodecState* const state,
                            states.Prepare(codec, plan.key.id(), static_cast<uint32_t>(i), part));
    exchange.states.push_back(state);
    exchange.parts[i].gradient = part.gradient;
    exchange.parts[i].residual = part.residual;
  }
  exchange.input.parts = exchange.parts;
  if (codec.phases()->wants_memory()) {
    const TensorPlan& last = *exchange.keys.back();
    SLIMPS_ASSIGN_OR_RETURN(exchange.input.memory, states.Keep(last.key.id(), last.elements));
  }
  exchange.run = codec.phases()->BeginExchange(exchange.input);
  return absl::OkStatus();
}

absl::Status PhasedPushes::FindKeys(Exchange& exchange) const {
  const TensorPlan& plan = exchange.plan();
  exchange.shapes = exchange.codec->phases()->AuxiliaryKeys(plan.shape());
  for (const AuxiliaryShape& shape : exchange.shapes) {
    const KeyId id = Key::Auxiliary(shape.name, plan.key).id();
    const auto found = std::ranges::find_if(
        exchange.tensor->keys, [id](const PhaseKey& key) { return key.plan.key.id() == id; });
    if (found == exchange.tensor->keys.end() || found->plan.elements < shape.elements()) {
      return absl::FailedPreconditionError(
          absl::StrCat("codec ", exchange.codec->spec().ToString(), ", phase ",
                       std::string(shape.name), ": expected a key of ", shape.rows,
                       " rows, which Init makes for the codecs that were chosen before it"));
    }
    exchange.keys.push_back(&found->plan);
  }
  return absl::OkStatus();
}

absl::Status PhasedPushes::SendPhase(const std::shared_ptr<Exchange>& exchange) {
  Exchange& one = *exchange;
  const TensorPlan& key = *one.keys[one.phase];
  const AuxiliaryShape& shape = one.shapes[one.phase];
  Contributed mine{.key = &key,
                   .round = one.tensor->exchanged,
                   .job_round = one.job.round,
                   .priority = SendPriority(one.job.round, one.job.priority),
                   .rows = shape.elements() == key.elements ? 0 : shape.rows,
                   .values = {}};
  if (one.input.contributes()) {
    const SteadyTime start = options_.clock->Now();
    AlignedBuffer values = AlignedBuffer::OfFloats(shape.elements(), BufferUse::kPayload);
    SLIMPS_RETURN_IF_ERROR(one.run->Contribute(one.phase, values.floats()));
    const SteadyTime end = options_.clock->Now();
    one.encode += end - start;
    TraceLog::Global().AddOfThread(TraceStage::kEncode, {key.key.typed_name(), 0, one.job.round},
                                   start, end);
    if (one.run->has_read_gradients()) one.job.grad_bufs.clear();
    const size_t bytes = values.size();
    mine.values = Payload::Adopt(std::move(values), bytes);
  }
  exchange_.Combine(std::move(mine), [this, exchange](Combined combined) {
    MutexLock lock(&mutex_);
    if (failed_.ok()) Queue({.exchange = exchange, .answer = std::move(combined)});
  });
  return absl::OkStatus();
}

absl::Status PhasedPushes::SendPayloads(Exchange& exchange) {
  const SteadyTime start = options_.clock->Now();
  std::vector<ReadyPayload> payloads(exchange.parts.size());
  for (size_t i = 0; i < payloads.size() && exchange.input.contributes(); ++i) {
    ReadyPayload& ready = payloads[i];
    ready.elements = exchange.plan().partitions[i].elements;
    ready.compressed = true;
    size_t used = 0;
    if (exchange.run->Sends(i)) {
      AlignedBuffer bytes(exchange.run->MaxPayloadBytes(i), BufferUse::kPayload);
      SLIMPS_ASSIGN_OR_RETURN(used, exchange.run->Write(i, bytes.bytes()));
      ready.format = static_cast<wire::Format>(exchange.codec->format());
      ready.payload = Payload::Adopt(std::move(bytes), used);
    }
    ready.stats = exchange.run->StatsOf(i);
    ready.stats.payload_bytes = used;
    if (exchange.states[i] != nullptr) exchange.states[i]->NoteEncoded(ready.stats);
  }
  // The phases serve the whole tensor: its first partition brings their bytes into the counts.
  for (const AuxiliaryShape& shape : exchange.shapes) {
    if (!exchange.input.contributes()) break;
    payloads[0].stats.payload_bytes += shape.elements() * sizeof(float);
  }
  exchange.encode += options_.clock->Now() - start;
  exchange.is_pushed = true;
  exchange.job.grad_bufs.clear();
  PushJob job = exchange.job;
  job.ready = std::make_shared<const std::vector<ReadyPayload>>(std::move(payloads));
  return pushes_->Submit(std::move(job));
}

}  // namespace slimps
