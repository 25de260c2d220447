// SPDX-License-Identifier: Apache-2.0
#include "backup_model/backup_model.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/base/buffer.h"
#include "proto/base/clock.h"
#include "proto/base/status_copy.h"
#include "proto/base/status_macros.h"

namespace slimps {
namespace {

static_assert(std::endian::native == std::endian::little, "numbers are copied as they lie");

// Bytes in a saved state: their number, uint64, then the bytes.
void AppendBytes(std::span<const std::byte> bytes, std::string* content) {
  const uint64_t length = bytes.size();
  content->append(reinterpret_cast<const char*>(&length), sizeof length);
  content->append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
}

absl::StatusOr<std::string_view> TakeBytes(std::string_view* content) {
  uint64_t length = 0;
  if (content->size() < sizeof length) return absl::InvalidArgumentError("its state ends early");
  std::memcpy(&length, content->data(), sizeof length);
  content->remove_prefix(sizeof length);
  if (content->size() < length) return absl::InvalidArgumentError("its state ends early");
  const std::string_view bytes = content->substr(0, length);
  content->remove_prefix(length);
  return bytes;
}

// Returns `given` or, if there is none, new memory.
BackupBuffer MakeBuffer(const BackupBuffer& given, size_t elements) {
  if (!given.floats.empty()) return given;
  auto made = std::make_shared<AlignedBuffer>(AlignedBuffer::OfFloats(elements));
  const std::span<float> floats = made->floats();
  return {.floats = floats, .owner = std::move(made)};
}

absl::Status CheckBuffer(const BackupTensor& tensor, const BackupBuffer& given, const char* what) {
  if (given.floats.empty() || given.floats.size() == tensor.initial.size()) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat("tensor ", tensor.name, ": ", what, ": expected ",
                                                 tensor.initial.size(), " elements, got ",
                                                 given.floats.size()));
}

}  // namespace

// The passes over memory run under the tensor's lock. No other thread has anything to do with the
// tensor meanwhile, and none sees a half-merged loc_buf.
struct BackupModel::Tensor {
  Tensor(size_t index, const BackupTensor& from, const Clock* clock)
      : index(index),
        clock(clock),
        name(from.name),
        glo_buf(MakeBuffer(from.glo_buf, from.initial.size())),
        state(from.name),
        loc_buf(MakeBuffer(from.loc_buf, from.initial.size())) {
    if (from.initial.data() != glo_buf.floats.data()) {
      std::ranges::copy(from.initial, glo_buf.floats.begin());
    }
    if (from.initial.data() != loc_buf.floats.data()) {
      std::ranges::copy(from.initial, loc_buf.floats.begin());
    }
  }

  // Waits until `ready()` is true of the state.
  // DeadlineExceeded: says that `what` did not come about.
  template <typename Ready>
  absl::Status Await(Ready ready, SteadyTime deadline, const std::string& what)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
    while (failure.ok() && !ready(state)) {
      const absl::Duration left = deadline - clock->Now();
      if (left <= absl::ZeroDuration()) {
        return absl::DeadlineExceededError(absl::StrCat("tensor ", name, ": waited in vain for ",
                                                        what, "; state: ", state.ToString()));
      }
      changed.WaitFor(&mutex, left);
    }
    return failure;
  }

  // Reports an accepted event and wakes all waiters.
  void Publish(const BackupModelOptions& options, TensorEvent event, int64_t number)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
    if (options.on_event) options.on_event({index, event, number});
    changed.NotifyAll();
  }

  const size_t index;
  const Clock* const clock;
  const std::string name;
  // `state` decides which thread may write or read the contents of glo_buf and loc_buf.
  const BackupBuffer glo_buf;

  Mutex mutex;
  CondVar changed;
  TensorState state ABSL_GUARDED_BY(mutex);
  BackupBuffer loc_buf ABSL_GUARDED_BY(mutex);  // without an owner: the caller's memory
  LocalUpdaterState updater_state ABSL_GUARDED_BY(mutex);
  std::optional<Hyper> hyper ABSL_GUARDED_BY(mutex);  // nullopt: as all tensors
  absl::Status failure ABSL_GUARDED_BY(mutex);
};

BackupModel::BackupModel(BackupModelOptions options, LocalUpdater updater)
    : options_(std::move(options)),
      updater_(std::move(updater)),
      learning_rate_(updater_.learning_rate()) {}

BackupModel::~BackupModel() = default;

absl::StatusOr<std::unique_ptr<BackupModel>> BackupModel::Create(
    BackupModelOptions options, std::span<const BackupTensor> tensors) {
  SLIMPS_ASSIGN_OR_RETURN(LocalUpdater updater, LocalUpdater::Create(options.updater));
  std::unique_ptr<BackupModel> model(new BackupModel(std::move(options), std::move(updater)));
  for (const BackupTensor& tensor : tensors) {
    SLIMPS_RETURN_IF_ERROR(CheckBuffer(tensor, tensor.glo_buf, "glo_buf"));
    SLIMPS_RETURN_IF_ERROR(CheckBuffer(tensor, tensor.loc_buf, "loc_buf"));
    model->tensors_.push_back(
        std::make_unique<Tensor>(model->tensors_.size(), tensor, model->options_.clock));
  }
  return model;
}

absl::StatusOr<BackupModel::Tensor*> BackupModel::Find(size_t tensor) const {
  if (tensor < tensors_.size()) return tensors_[tensor].get();
  return absl::InvalidArgumentError(
      absl::StrCat("backup model: tensor ", tensor, " of ", tensors_.size()));
}

absl::StatusOr<std::span<float>> BackupModel::BeginGlobalWrite(size_t tensor, int64_t version) {
  SLIMPS_ASSIGN_OR_RETURN(Tensor* const t, Find(tensor));
  MutexLock lock(&t->mutex);
  SLIMPS_RETURN_IF_ERROR(t->failure);
  SLIMPS_RETURN_IF_ERROR(t->state.BeginGlobal(version));
  t->Publish(options_, TensorEvent::kBeginGlobal, version);
  return t->glo_buf.floats;
}

absl::Status BackupModel::CommitGlobal(size_t tensor, int64_t version) {
  SLIMPS_ASSIGN_OR_RETURN(Tensor* const t, Find(tensor));
  MutexLock lock(&t->mutex);
  SLIMPS_RETURN_IF_ERROR(t->failure);
  SLIMPS_RETURN_IF_ERROR(t->state.GlobalArrived(version));
  t->Publish(options_, TensorEvent::kGlobalArrived, version);
  return absl::OkStatus();
}

absl::Status BackupModel::WaitGlobal(size_t tensor, int64_t version, SteadyTime deadline) {
  SLIMPS_ASSIGN_OR_RETURN(Tensor* const t, Find(tensor));
  MutexLock lock(&t->mutex);
  return t->Await([&](const TensorState& state) { return state.global_version() >= version; },
                  deadline, absl::StrCat("version ", version, " in glo_buf"));
}

absl::Status BackupModel::FinishIteration(size_t tensor, int64_t iteration,
                                          std::span<const float> gradient, SteadyTime deadline,
                                          std::span<float> loc_buf) {
  SLIMPS_ASSIGN_OR_RETURN(Tensor* const t, Find(tensor));
  const size_t elements = t->glo_buf.floats.size();
  for (const auto& [what, size] :
       {std::pair("gradient", gradient.size()), std::pair("loc_buf", loc_buf.size())}) {
    if (size == 0 || size == elements) continue;
    return absl::InvalidArgumentError(absl::StrCat("tensor ", t->name, ": ", what, " of iteration ",
                                                   iteration, " has ", size, " elements, expected ",
                                                   elements));
  }
  Hyper hyper{.learning_rate = 0, .weight_decay = options_.updater.update.weight_decay};
  {
    MutexLock lock(&learning_rate_mutex_);
    hyper.learning_rate = learning_rate_;
  }
  const int64_t version = iteration - 1;
  MutexLock lock(&t->mutex);
  hyper = t->hyper.value_or(hyper);
  // Waiting never makes an event out of turn come into turn, so only the right iteration waits.
  SLIMPS_RETURN_IF_ERROR(t->Await(
      [&](const TensorState& state) {
        return state.iteration() != iteration || !state.was_read() ||
               (state.readers() == 0 && state.global_version() >= version);
      },
      deadline,
      absl::StrCat("version ", version, " in glo_buf and the readers of iteration ", iteration)));
  if (t->state.iteration() != iteration) {
    return absl::FailedPreconditionError(absl::StrCat("tensor ", t->name, ": iteration ", iteration,
                                                      " cannot finish; expected iteration ",
                                                      t->state.iteration()));
  }
  SLIMPS_RETURN_IF_ERROR(t->state.MergeGlobal(version));
  t->Publish(options_, TensorEvent::kMergeGlobal, version);
  if (!loc_buf.empty()) t->loc_buf = {.floats = loc_buf};
  // The copy and the update are one pass over memory.
  if (gradient.empty()) {
    updater_.Skip(t->glo_buf.floats, hyper, t->updater_state, t->loc_buf.floats);
  } else {
    updater_.Step(t->glo_buf.floats, gradient, hyper, t->updater_state, t->loc_buf.floats);
  }
  SLIMPS_RETURN_IF_ERROR(t->state.LocalUpdate(iteration));
  t->Publish(options_, TensorEvent::kLocalUpdate, iteration);
  return absl::OkStatus();
}

void BackupModel::KeepLocal(size_t tensor, std::span<const float> memory) {
  Tensor& t = *tensors_[tensor];
  MutexLock lock(&t.mutex);
  if (t.loc_buf.floats.data() != memory.data()) return;
  const BackupBuffer kept = MakeBuffer({}, memory.size());
  std::ranges::copy(t.loc_buf.floats, kept.floats.begin());
  t.loc_buf = kept;
}

absl::StatusOr<BackupModel::ReadLease> BackupModel::AcquireRead(size_t tensor, int64_t iteration,
                                                                SteadyTime deadline) {
  SLIMPS_ASSIGN_OR_RETURN(Tensor* const t, Find(tensor));
  MutexLock lock(&t->mutex);
  SLIMPS_RETURN_IF_ERROR(t->Await(
      [&](const TensorState& state) {
        return state.iteration() >= iteration && state.status() == LocStatus::kUpdated;
      },
      deadline, absl::StrCat("the weights of iteration ", iteration, " in loc_buf")));
  SLIMPS_RETURN_IF_ERROR(t->state.AcquireRead(iteration));
  t->Publish(options_, TensorEvent::kAcquireRead, iteration);
  return ReadLease(this, tensor, t->loc_buf.floats);
}

void BackupModel::ReleaseRead(size_t tensor) {
  Tensor& t = *tensors_[tensor];
  MutexLock lock(&t.mutex);
  // Cannot be refused: only a lease calls this, and only once.
  t.state.ReleaseRead().IgnoreError();
  t.Publish(options_, TensorEvent::kReleaseRead, t.state.iteration());
}

absl::Status BackupModel::Drain(int64_t version, SteadyTime deadline) {
  for (size_t tensor = 0; tensor < tensors_.size(); ++tensor) {
    SLIMPS_RETURN_IF_ERROR(WaitGlobal(tensor, version, deadline));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string> BackupModel::Save(int64_t version, SteadyTime deadline) {
  SLIMPS_RETURN_IF_ERROR(Drain(version, deadline));
  std::string content;
  for (const auto& t : tensors_) {
    MutexLock lock(&t->mutex);
    const LocalUpdaterState& updater = t->updater_state;
    AppendBytes(std::as_bytes(t->loc_buf.floats), &content);
    AppendBytes(std::as_bytes(std::span(&updater.steps, 1)), &content);
    AppendBytes(std::as_const(updater.first_moment).bytes(), &content);
    AppendBytes(std::as_const(updater.second_moment).bytes(), &content);
    AppendBytes(std::as_bytes(std::span(&updater.past, 1)), &content);
  }
  return content;
}

absl::Status BackupModel::Restore(int64_t version, std::string_view content) {
  absl::Status restored;
  for (const auto& t : tensors_) {
    MutexLock lock(&t->mutex);
    LocalUpdaterState& updater = t->updater_state;
    const auto take = [&](const char* what, std::span<std::byte> out) {
      const absl::StatusOr<std::string_view> bytes = TakeBytes(&content);
      restored.Update(bytes.status());
      if (restored.ok() && bytes->size() != out.size()) {
        restored =
            absl::InvalidArgumentError(absl::StrCat("tensor ", t->name, ": ", what, ": expected ",
                                                    out.size(), " bytes, got ", bytes->size()));
      }
      if (restored.ok() && !out.empty()) std::memcpy(out.data(), bytes->data(), out.size());
    };
    // The first step makes the moments. Which ones there are, only their lengths tell.
    const auto take_moment = [&](const char* what, AlignedBuffer* moment) {
      std::string_view left = content;
      const absl::StatusOr<std::string_view> bytes = TakeBytes(&left);
      if (bytes.ok() && !bytes->empty()) {
        *moment = AlignedBuffer::OfFloats(t->glo_buf.floats.size());
      }
      take(what, moment->bytes());
    };
    take("w_loc", std::as_writable_bytes(t->loc_buf.floats));
    take("steps", std::as_writable_bytes(std::span(&updater.steps, 1)));
    take_moment("first moment", &updater.first_moment);
    take_moment("second moment", &updater.second_moment);
    take("past step", std::as_writable_bytes(std::span(&updater.past, 1)));
    SLIMPS_RETURN_IF_ERROR(Prefixed(restored, "backup model"));
    t->state.ResumeAt(version);
  }
  if (content.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("backup model: ", content.size(), " bytes follow the last tensor"));
}

std::span<const float> BackupModel::Global(size_t tensor) const {
  return tensors_[tensor]->glo_buf.floats;
}

void BackupModel::set_learning_rate(double learning_rate) {
  MutexLock lock(&learning_rate_mutex_);
  learning_rate_ = learning_rate;
}

absl::Status BackupModel::SetHyper(size_t tensor, const Hyper& hyper) {
  SLIMPS_ASSIGN_OR_RETURN(Tensor* const t, Find(tensor));
  SLIMPS_RETURN_IF_ERROR(Prefixed(CheckHyper(hyper), absl::StrCat("tensor ", t->name)));
  MutexLock lock(&t->mutex);
  SLIMPS_RETURN_IF_ERROR(t->failure);
  t->hyper = hyper;
  return absl::OkStatus();
}

void BackupModel::FailAll(const absl::Status& why) {
  for (const auto& t : tensors_) {
    MutexLock lock(&t->mutex);
    t->failure.Update(why);  // the first one stays
    t->changed.NotifyAll();
  }
}

BackupModel::ReadLease::ReadLease(ReadLease&& other) noexcept
    : model_(std::exchange(other.model_, nullptr)),
      tensor_(other.tensor_),
      weights_(std::exchange(other.weights_, {})) {}

BackupModel::ReadLease& BackupModel::ReadLease::operator=(ReadLease&& other) noexcept {
  if (this == &other) return *this;
  Release();
  model_ = std::exchange(other.model_, nullptr);
  tensor_ = other.tensor_;
  weights_ = std::exchange(other.weights_, {});
  return *this;
}

BackupModel::ReadLease::~ReadLease() { Release(); }

void BackupModel::ReadLease::Release() {
  if (model_ != nullptr) std::exchange(model_, nullptr)->ReleaseRead(tensor_);
}

}  // namespace slimps
