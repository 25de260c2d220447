// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <set>

#include "backup_model/backup_model.h"
#include "proto/base/clock.h"
#include "proto/base/mutex.h"
#include "proto/base/status_macros.h"
#include "proto/base/thread.h"
#include "tools/bench/cluster/loop_base.h"

namespace slimps {
namespace {

constexpr double kLocalRate = 1e-3;

// A tensor's local step is due when its gradient of iteration i has been pushed and version i-1 has
// arrived. The updater's thread makes the steps that are due, front layers first, so that the next
// forward pass may begin before the last layer's weights have arrived.
class BackupLoop final : public LoopBase {
 public:
  BackupLoop(KVStore* store, const ModelShape& model, const TrainingLoopOptions& options)
      : LoopBase(store, model, options),
        steps_(model.tensors.size()),
        local_(model.tensors.size(), 1),
        global_(model.tensors.size(), 0) {}

  ~BackupLoop() override {
    {
      MutexLock lock(&mutex_);
      stopping_ = true;
      changed_.NotifyAll();
    }
    if (updater_.joinable()) updater_.Join();
  }

  absl::Status Start() {
    std::vector<AlignedBuffer> first;
    std::vector<std::span<float>> spans;
    for (size_t i = 0; i < tensors(); ++i) {
      first.push_back(AlignedBuffer::OfFloats(elements(i)));
      spans.push_back(first.back().floats());
    }
    SLIMPS_RETURN_IF_ERROR(Init(spans));
    std::vector<BackupTensor> backups;
    for (size_t i = 0; i < tensors(); ++i) backups.push_back({model_.tensors[i].name, spans[i]});
    BackupModelOptions backup;
    backup.updater.learning_rate = kLocalRate;
    SLIMPS_ASSIGN_OR_RETURN(backup_, BackupModel::Create(std::move(backup), backups));
    updater_ = Thread("updater", [this] { Update(); });
    return absl::OkStatus();
  }

  absl::Status Finish() override {
    SLIMPS_RETURN_IF_ERROR(AwaitAll(newest_));
    SLIMPS_RETURN_IF_ERROR(backup_->Drain(newest_, Deadline()));
    return store_->Wait();
  }

  uint64_t WeightsHash() const override {
    uint64_t hash = 0;
    for (size_t i = 0; i < tensors(); ++i) hash = HashOf(hash, backup_->Global(i));
    return hash;
  }

 private:
  // What the updater waits for, for one tensor.
  struct Step {
    int64_t pushed = 0;   // newest iteration
    int64_t arrived = 0;  // newest version
  };

  SteadyTime Deadline() const { return MachineClock()->Now() + options_.timeout; }

  absl::StatusOr<SteadyTime> AwaitWeights(size_t tensor, int64_t iteration) override {
    SLIMPS_ASSIGN_OR_RETURN(const SteadyTime at, local_.Wait(tensor, iteration, options_.timeout));
    // Acquires loc_buf as the copy to the accelerator would. The copy itself is left out: on a real
    // machine the DMA engine makes it, not the CPU.
    SLIMPS_RETURN_IF_ERROR(backup_->AcquireRead(tensor, iteration, Deadline()).status());
    return at;
  }

  absl::Status AfterPush(size_t tensor, int64_t iteration) override {
    newest_ = iteration;
    MutexLock lock(&mutex_);
    steps_[tensor].pushed = iteration;
    MarkIfDue(tensor);
    return absl::OkStatus();
  }

  absl::Status AwaitAll(int64_t iteration) override {
    for (size_t i = 0; i < tensors(); ++i) {
      SLIMPS_RETURN_IF_ERROR(global_.Wait(i, iteration, options_.timeout).status());
    }
    return absl::OkStatus();
  }

  void MarkIfDue(size_t tensor) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    if (steps_[tensor].pushed != steps_[tensor].arrived + 1) return;
    due_.insert(tensor);
    changed_.NotifyAll();
  }

  void OnGlobal(size_t tensor, int64_t version, absl::Status status) {
    if (status.ok()) status = backup_->CommitGlobal(tensor, version);
    if (!status.ok()) return Fail(status);
    global_.Arrived(tensor, version);
    MutexLock lock(&mutex_);
    steps_[tensor].arrived = version;
    MarkIfDue(tensor);
  }

  void Fail(const absl::Status& why) {
    backup_->FailAll(why);
    local_.Fail(why);
    global_.Fail(why);
  }

  // Runs on the updater's thread.
  void Update() {
    for (;;) {
      size_t tensor = 0;
      int64_t iteration = 0;
      {
        MutexLock lock(&mutex_);
        while (!stopping_ && due_.empty()) changed_.Wait(&mutex_);
        if (stopping_) return;
        tensor = *due_.begin();
        due_.erase(due_.begin());
        iteration = steps_[tensor].pushed;
      }
      const absl::Status status = StepAndPull(tensor, iteration);
      if (!status.ok()) return Fail(status);
    }
  }

  absl::Status StepAndPull(size_t tensor, int64_t iteration) {
    SLIMPS_RETURN_IF_ERROR(
        backup_->FinishIteration(tensor, iteration, Gradient(tensor, iteration), Deadline()));
    SLIMPS_ASSIGN_OR_RETURN(const std::span<float> glo_buf,
                            backup_->BeginGlobalWrite(tensor, iteration));
    store_->PullOnto(key(tensor), glo_buf, PriorityOf(tensor),
                     [this, tensor, iteration](const absl::Status& status) {
                       OnGlobal(tensor, iteration, status);
                     });
    // Only after the pull has started: a pull gets the newest pushed round, and the next push of
    // this tensor cannot happen before these local weights have arrived.
    local_.Arrived(tensor, iteration + 1);
    return absl::OkStatus();
  }

  std::unique_ptr<BackupModel> backup_;
  int64_t newest_ = 0;

  Mutex mutex_;
  CondVar changed_;
  std::vector<Step> steps_ ABSL_GUARDED_BY(mutex_);
  std::set<size_t> due_ ABSL_GUARDED_BY(mutex_);
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;

  Arrivals local_;   // w_loc(i) as version i
  Arrivals global_;  // glo_buf
  Thread updater_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<TrainingLoop>> MakeBackupLoop(KVStore* store,
                                                             const ModelShape& model,
                                                             const TrainingLoopOptions& options) {
  auto loop = std::make_unique<BackupLoop>(store, model, options);
  SLIMPS_RETURN_IF_ERROR(loop->Start());
  return loop;
}

}  // namespace slimps
