// SPDX-License-Identifier: Apache-2.0
#include "worker/exchange/next_weights.h"

#include <algorithm>
#include <new>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/base/out_of_memory.h"
#include "proto/base/status_copy.h"
#include "proto/base/status_macros.h"
#include "proto/base/trace/trace.h"
#include "worker/exchange/parameter.h"

namespace slimps {

namespace {

// A parameter is copied in chunks of so many elements, which are shared among threads.
constexpr size_t kChunkElements = size_t{256} << 10;

// A lease, with the model that it needs.
struct HeldLease {
  HeldLease(std::shared_ptr<BackupModel> backup, BackupModel::ReadLease held)
      : model(std::move(backup)), lease(std::move(held)) {}
  const std::shared_ptr<BackupModel> model;
  const BackupModel::ReadLease lease;  // declared last, so that it ends first
};

}  // namespace

NextWeights::NextWeights(KVStore* store, std::vector<NextTensor> tensors,
                         std::shared_ptr<BackupModel> backup, int64_t finished, const Clock* clock)
    : store_(store),
      tensors_(std::move(tensors)),
      backup_(std::move(backup)),
      clock_(clock),
      states_(tensors_.size(),
              {.pushed = finished, .arrived = finished, .made = finished, .written = finished}),
      iteration_(finished),
      published_(finished) {}

void NextWeights::Start() {
  thread_ = Thread("step", [this] { Run(); });
}

void NextWeights::Stop() {
  {
    MutexLock lock(&mutex_);
    stopping_ = true;
    due_.clear();
    changed_.NotifyAll();
  }
  if (thread_.joinable()) thread_.Join();
}

void NextWeights::Begin(int64_t iteration) {
  MutexLock lock(&mutex_);
  iteration_ = iteration;
  not_made_ = not_arrived_ = states_.size();
  last_arrivals_[static_cast<size_t>(iteration) % 2] = SteadyTime::InfinitePast();
}

void NextWeights::Pushed(size_t tensor, OwnedGradient gradient, double scale) {
  int64_t iteration = 0;
  {
    MutexLock lock(&mutex_);
    State& state = states_[tensor];
    state.pushed = iteration = iteration_;
    state.gradient = std::move(gradient);
    state.scale = scale;
    if (backup_ != nullptr && state.arrived == iteration - 1) AddWork(tensor, Work::kLocalStep);
  }
  if (backup_ == nullptr) Pull(tensor, iteration);
}

bool NextWeights::WasPushed(size_t tensor) const {
  MutexLock lock(&mutex_);
  return states_[tensor].pushed == iteration_;
}

void NextWeights::Publish() {
  MutexLock lock(&mutex_);
  published_ = iteration_;
  not_written_ = 0;
  for (size_t i = 0; i < states_.size(); ++i) {
    if (states_[i].written == published_) continue;
    ++not_written_;
    if (states_[i].made == published_ && !tensors_[i].spare) AddWork(i, Work::kWrite);
  }
}

void NextWeights::SetMemory(size_t tensor, std::span<float> values) {
  MutexLock lock(&mutex_);
  tensors_[tensor].values = values;
}

void NextWeights::Rewrite() {
  MutexLock lock(&mutex_);
  not_written_ = states_.size();
  for (size_t i = 0; i < states_.size(); ++i) AddWork(i, Work::kWrite);
}

// ---- what is due --------------------------------------------------------------------------------

void NextWeights::AddWork(size_t tensor, Work work) {
  if (stopping_ || !status_.ok()) return;
  due_.emplace(tensor, work);
  changed_.NotifyAll();
}

void NextWeights::Run() {
  MutexLock lock(&mutex_);
  for (;;) {
    while (!stopping_ && due_.empty()) changed_.Wait(&mutex_);
    if (stopping_) return;
    DoNext();
  }
}

void NextWeights::DoNext() {
  const auto [tensor, work] = *due_.begin();
  due_.erase(due_.begin());
  State& kept = states_[tensor];
  State state = kept;
  if (work == Work::kLocalStep) kept.gradient = {};
  ++working_;
  mutex_.Unlock();
  absl::Status done;
  try {
    done = work == Work::kLocalStep ? StepLocally(tensor, state.pushed, state)
                                    : WriteMade(tensor, state.made);
    state.gradient = {};
  } catch (const std::bad_alloc& error) {
    done = OutOfMemoryStatus(error);
  } catch (...) {
    done = absl::InternalError("the next step's weights: an exception");
  }
  mutex_.Lock();
  --working_;
  changed_.NotifyAll();
  if (!done.ok()) return NoteError(done);
  if (work == Work::kLocalStep) {
    NoteMade(tensor, state.pushed);
  } else {
    kept.written = state.made;
    if (kept.written == published_) --not_written_;
  }
}

absl::Status NextWeights::StepLocally(size_t tensor, int64_t iteration, const State& state) {
  const SteadyTime start = clock_->Now();
  std::vector<float> scaled;
  std::span<const float> gradient = state.gradient.values;
  if (state.scale != 1) {
    scaled.assign(gradient.begin(), gradient.end());
    for (float& value : scaled) value = static_cast<float>(value * state.scale);
    gradient = scaled;
  }
  // The lease of a copy to a GPU ends before the gradient that the copied weights led to.
  const NextTensor& to = tensors_[tensor];
  SLIMPS_RETURN_IF_ERROR(backup_->FinishIteration(tensor, iteration, gradient,
                                                  SteadyTime::InfiniteFuture(),
                                                  to.spare ? to.values : std::span<float>()));
  const SteadyTime end = clock_->Now();
  TraceLog::Global().AddOfThread(
      TraceStage::kLocalUpdate,
      {tensors_[tensor].key.typed_name(), 0, static_cast<uint64_t>(iteration)}, start, end);
  Pull(tensor, iteration);
  MutexLock lock(&mutex_);
  local_update_ += end - start;
  return absl::OkStatus();
}

absl::Status NextWeights::WriteMade(size_t tensor, int64_t iteration) {
  if (backup_ == nullptr) {
    Write(tensor, tensors_[tensor].glo_buf.floats, tensors_[tensor].glo_buf.owner);
    return absl::OkStatus();
  }
  SLIMPS_ASSIGN_OR_RETURN(
      BackupModel::ReadLease lease,
      backup_->AcquireRead(tensor, iteration + 1, SteadyTime::InfiniteFuture()));
  const std::span<const float> weights = lease.weights();
  Write(tensor, weights,
        tensors_[tensor].gpu == nullptr ? nullptr
                                        : std::make_shared<HeldLease>(backup_, std::move(lease)));
  return absl::OkStatus();
}

void NextWeights::WriteGlobal(size_t tensor) {
  backup_->KeepLocal(tensor, tensors_[tensor].values);
  Write(tensor, backup_->Global(tensor), backup_);
}

void NextWeights::Write(size_t tensor, std::span<const float> weights,
                        std::shared_ptr<const void> owner) {
  const NextTensor& to = tensors_[tensor];
  const std::span<float> values = to.values;
  if (weights.data() == values.data()) return;  // the local step has written them
  if (to.gpu == nullptr) {
    const auto copy = [&](size_t first, size_t last) {
      std::ranges::copy(weights.subspan(first, last - first), values.begin() + first);
    };
    if (values.size() <= kChunkElements) return copy(0, values.size());
    return arena_.Run([&] { WorkArena::ForChunks(values.size(), kChunkElements, copy); });
  }
  {
    MutexLock lock(&mutex_);
    ++copies_;
  }
  to.gpu->CopyToDevice(to.key.id(), weights, values, to.place.stream,
                       [self = shared_from_this(), owner = std::move(owner)](
                           KeyId, const absl::Status& copied) mutable {
                         owner.reset();  // who waits may then write to the source
                         MutexLock lock(&self->mutex_);
                         --self->copies_;
                         self->NoteError(Prefixed(copied, "copying weights to a GPU"));
                         self->changed_.NotifyAll();
                       });
}

void NextWeights::NoteMade(size_t tensor, int64_t iteration) {
  if (states_[tensor].made == iteration) return;
  states_[tensor].made = iteration;
  if (iteration == iteration_) --not_made_;
  if (published_ == iteration || tensors_[tensor].spare) AddWork(tensor, Work::kWrite);
}

// ---- pulls --------------------------------------------------------------------------------------

void NextWeights::Pull(size_t tensor, int64_t version) {
  std::span<float> glo_buf = tensors_[tensor].glo_buf.floats;
  if (backup_ != nullptr) {
    const absl::StatusOr<std::span<float>> begun = backup_->BeginGlobalWrite(tensor, version);
    if (!begun.ok()) {
      MutexLock lock(&mutex_);
      return NoteError(begun.status());
    }
    glo_buf = *begun;
  }
  store_->PullOnto(tensors_[tensor].key, glo_buf, PriorityOf(tensor),
                   [self = shared_from_this(), tensor, version](const absl::Status& pulled) {
                     self->Arrived(tensor, version, pulled);
                   });
}

void NextWeights::Arrived(size_t tensor, int64_t version, const absl::Status& pulled) {
  absl::Status arrived = pulled;
  if (arrived.ok() && backup_ != nullptr) arrived = backup_->CommitGlobal(tensor, version);
  const SteadyTime now = clock_->Now();
  MutexLock lock(&mutex_);
  if (!arrived.ok()) return NoteError(arrived);
  State& state = states_[tensor];
  state.arrived = version;
  if (version == iteration_) --not_arrived_;
  SteadyTime& last = last_arrivals_[static_cast<size_t>(version) % 2];
  last = std::max(last, now);
  if (backup_ == nullptr) {
    NoteMade(tensor, version);
  } else if (state.pushed == version + 1) {
    AddWork(tensor, Work::kLocalStep);
  }
  changed_.NotifyAll();
}

// ---- waiting ------------------------------------------------------------------------------------

absl::Status NextWeights::Await(SteadyTime deadline, absl::FunctionRef<size_t()> missing) {
  MutexLock lock(&mutex_);
  while (status_.ok() && missing() > 0) {
    if (!due_.empty()) {
      DoNext();
      continue;
    }
    const absl::Duration left = deadline - clock_->Now();
    if (left <= absl::ZeroDuration()) {
      return absl::DeadlineExceededError(
          absl::StrCat("weights of a round: ", missing(), " tensors have not arrived in time"));
    }
    changed_.WaitFor(&mutex_, left);
  }
  return status_;
}

absl::Status NextWeights::AwaitMade(SteadyTime deadline) {
  return Await(deadline, [this]() ABSL_NO_THREAD_SAFETY_ANALYSIS { return not_made_; });
}

absl::Status NextWeights::AwaitWritten(SteadyTime deadline) {
  return Await(deadline, [this]() ABSL_NO_THREAD_SAFETY_ANALYSIS { return not_written_; });
}

absl::Status NextWeights::AwaitWritten(size_t tensor, SteadyTime deadline) {
  return Await(deadline, [&]() ABSL_NO_THREAD_SAFETY_ANALYSIS {
    return size_t{states_[tensor].written < published_};
  });
}

absl::Status NextWeights::status() const {
  MutexLock lock(&mutex_);
  return status_;
}

bool NextWeights::IsWritten(size_t tensor) const {
  MutexLock lock(&mutex_);
  return status_.ok() && states_[tensor].written >= published_;
}

absl::Status NextWeights::AwaitArrived(SteadyTime deadline) {
  return Await(deadline, [this]() ABSL_NO_THREAD_SAFETY_ANALYSIS { return not_arrived_; });
}

absl::Status NextWeights::AwaitCopied(SteadyTime deadline) {
  return Await(deadline, [this]() ABSL_NO_THREAD_SAFETY_ANALYSIS { return copies_; });
}

void NextWeights::NoteError(const absl::Status& why) {
  if (why.ok() || !status_.ok()) return;
  status_ = why;
  due_.clear();
  if (backup_ != nullptr) backup_->FailAll(why);
  changed_.NotifyAll();
}

void NextWeights::Fail(const absl::Status& why) {
  MutexLock lock(&mutex_);
  NoteError(why);
  while (working_ > 0) changed_.Wait(&mutex_);
}

SteadyTime NextWeights::last_arrival(int64_t version) const {
  MutexLock lock(&mutex_);
  return last_arrivals_[static_cast<size_t>(version) % 2];
}

absl::Duration NextWeights::local_update() const {
  MutexLock lock(&mutex_);
  return local_update_;
}

}  // namespace slimps
