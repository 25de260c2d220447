// SPDX-License-Identifier: Apache-2.0
// The backup model of one worker. The worker computes iteration i+1 on w_loc(i+1) = w_i - step(g_i)
// while the pushes and pulls of iteration i are still under way. Source: SlimGC sections 3.5 and
// 3.6; tensor_state.h has the rules per tensor.
//
// Iterations count from 1. Version v of the global weights has v rounds applied. So the paper's
// w_i, from which iteration i's gradient steps, is version i-1. The lag is exactly one round,
// whatever the network's timing.
//
//   auto model = BackupModel::Create({}, {{"s:conv1", initial}, ...});  // all at version 0
//   for (int64_t i = 1; ...; ++i) {
//     { auto lease = model->AcquireRead(t, i, deadline); ... copy lease->weights() ... }
//     ... forward, backward, Push(gradient of i) ...
//     // Waits for version i-1, merges it, steps: loc_buf is w_loc(i+1), glo_buf is free.
//     model->FinishIteration(t, i, gradient, deadline);
//     auto glo_buf = model->BeginGlobalWrite(t, i);
//     store->PullAsync(key, *glo_buf, priority, [=](absl::Status s) {  // on a background thread
//       if (s.ok()) s = model->CommitGlobal(t, i);
//       if (!s.ok()) model->FailAll(s);
//     });
//   }
//   model->Drain(last, deadline); ... evaluate or save model->Global(t) ...
//
// Thread-safe. Calls for different tensors run side by side. Every wait has a deadline and ends at
// once on FailAll. Pulls write into the model's memory, so end them (close the store) before the
// model is destroyed.
#ifndef SLIMPS_BACKUP_MODEL_BACKUP_MODEL_H_
#define SLIMPS_BACKUP_MODEL_BACKUP_MODEL_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "backup_model/local_updater.h"
#include "backup_model/tensor_state.h"
#include "proto/base/clock.h"
#include "proto/base/mutex.h"

namespace slimps {

// One accepted event, for traces and for tests of order. `number` is a version (kBeginGlobal,
// kGlobalArrived, kMergeGlobal) or an iteration (kLocalUpdate, kAcquireRead, kReleaseRead).
struct BackupEvent {
  size_t tensor = 0;
  TensorEvent event = TensorEvent::kBeginGlobal;
  int64_t number = 0;
};

struct BackupModelOptions {
  LocalUpdaterOptions updater;
  // Called under the tensor's lock, so in the true order of its events. It must be quick and must
  // not call the model.
  std::function<void(const BackupEvent&)> on_event;
  const Clock* clock = MachineClock();
};

// Memory of glo_buf (64-byte aligned) or loc_buf. `owner` frees it.
struct BackupBuffer {
  std::span<float> floats;
  std::shared_ptr<void> owner;
};

struct BackupTensor {
  std::string name;                // for messages
  std::span<const float> initial;  // version 0; copied
  // As long as `initial`, which may be one of them. Memory of their own kind lets a GPU copy from
  // loc_buf. Empty: the model makes the buffer. Without an owner: the caller's memory, until the
  // step that names another.
  BackupBuffer glo_buf = {}, loc_buf = {};
};

class BackupModel final {
 public:
  // The right to read loc_buf. While it lives, nothing writes there. Move-only. It must not outlive
  // the model.
  class ReadLease final {
   public:
    ReadLease(ReadLease&& other) noexcept;
    ReadLease& operator=(ReadLease&& other) noexcept;
    ~ReadLease();
    // The weights. A framework's parameter may alias them.
    std::span<const float> weights() const { return weights_; }

   private:
    friend class BackupModel;
    ReadLease(BackupModel* model, size_t tensor, std::span<const float> weights)
        : model_(model), tensor_(tensor), weights_(weights) {}
    void Release();

    BackupModel* model_;  // null once moved from
    size_t tensor_;
    std::span<const float> weights_;
  };

  // Makes a model whose tensors are numbered in the order given.
  // InvalidArgument: a bad updater option, or a buffer of another length than its tensor.
  [[nodiscard]] static absl::StatusOr<std::unique_ptr<BackupModel>> Create(
      BackupModelOptions options, std::span<const BackupTensor> tensors);
  ~BackupModel();
  BackupModel(const BackupModel&) = delete;
  BackupModel& operator=(const BackupModel&) = delete;

  size_t num_tensors() const { return tensors_.size(); }

  // Errors of all calls below:
  // InvalidArgument: an unknown tensor.
  // FailedPrecondition: an event out of turn (names the tensor, its state and what was expected).
  // DeadlineExceeded: names what was waited for.
  // After FailAll: its status.

  // Returns where to write `version` until CommitGlobal: 64-byte aligned, the whole tensor. Never
  // waits.
  // FailedPrecondition: the version before has not arrived or was not merged, or `version` is not
  // the next one.
  [[nodiscard]] absl::StatusOr<std::span<float>> BeginGlobalWrite(size_t tensor, int64_t version);

  // Says that glo_buf holds all of `version`. Any thread may call it. Never waits for the network.
  [[nodiscard]] absl::Status CommitGlobal(size_t tensor, int64_t version);

  // Waits until glo_buf holds `version` or a later one. FinishIteration waits by itself; a trainer
  // that calls this first can time the wait alone.
  [[nodiscard]] absl::Status WaitGlobal(size_t tensor, int64_t version, SteadyTime deadline);

  // Waits for version iteration-1, and until all readers have released loc_buf. Then copies that
  // version to loc_buf and applies the local update with this worker's full-precision gradient. The
  // gradient is read before the call returns and is not checked for NaN. An empty gradient says
  // that the tensor had none: loc_buf is then w_i, and no step is counted.
  // `loc_buf`: the caller's memory for it from this step on, as long as the tensor; empty: it stays
  // where it is. Only a lease, KeepLocal and Save read it: for these the caller keeps the memory,
  // and its contents, until the next step.
  // InvalidArgument: also, a gradient or loc_buf of another length.
  // FailedPrecondition: also, no reader has read loc_buf in this iteration.
  [[nodiscard]] absl::Status FinishIteration(size_t tensor, int64_t iteration,
                                             std::span<const float> gradient, SteadyTime deadline,
                                             std::span<float> loc_buf = {});

  // Moves loc_buf to memory of the model's own if it lies in `memory`, which the caller is about to
  // write. REQUIRES: tensor < num_tensors(), and nobody holds a lease.
  void KeepLocal(size_t tensor, std::span<const float> memory);

  // Waits until loc_buf is w_loc(iteration). Several readers may hold leases at once.
  // FailedPrecondition: a later iteration is already there.
  [[nodiscard]] absl::StatusOr<ReadLease> AcquireRead(size_t tensor, int64_t iteration,
                                                      SteadyTime deadline);

  // Waits until every tensor's glo_buf holds `version`, which is that of the newest finished
  // iteration.
  [[nodiscard]] absl::Status Drain(int64_t version, SteadyTime deadline);

  // Returns glo_buf, which does not change from Drain until the tensor's next BeginGlobalWrite.
  // REQUIRES: tensor < num_tensors().
  std::span<const float> Global(size_t tensor) const;

  // Waits until every tensor's glo_buf holds `version`, which is that of the newest finished
  // iteration. Returns all that later iterations depend on beside those weights.
  [[nodiscard]] absl::StatusOr<std::string> Save(int64_t version, SteadyTime deadline);

  // Goes on from there in place of version 0: the initial values are the global weights of
  // `version`. REQUIRES: called first of all.
  // InvalidArgument: `content` is not that of such a model. Then the model is of no use.
  [[nodiscard]] absl::Status Restore(int64_t version, std::string_view content);

  // Sets the servers' learning rate from the next FinishIteration on. loc_lr stays in proportion to
  // it. For a run that repeats bit for bit, call it between iterations.
  void set_learning_rate(double learning_rate);

  // Sets the numbers of one tensor, which set_learning_rate then leaves. FinishIteration uses what
  // was set when it was called.
  // InvalidArgument: a number is out of range.
  [[nodiscard]] absl::Status SetHyper(size_t tensor, const Hyper& hyper);

  // Fails every waiter and every later call with `why`: the store has failed. The first `why`
  // holds; OK is ignored.
  void FailAll(const absl::Status& why);

 private:
  struct Tensor;

  BackupModel(BackupModelOptions options, LocalUpdater updater);
  absl::StatusOr<Tensor*> Find(size_t tensor) const;
  void ReleaseRead(size_t tensor);

  const BackupModelOptions options_;
  const LocalUpdater updater_;
  std::vector<std::unique_ptr<Tensor>> tensors_;  // constant after Create; each has its own lock

  Mutex learning_rate_mutex_;  // taken alone
  double learning_rate_ ABSL_GUARDED_BY(learning_rate_mutex_);
};

}  // namespace slimps

#endif  // SLIMPS_BACKUP_MODEL_BACKUP_MODEL_H_
