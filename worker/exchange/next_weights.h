// SPDX-License-Identifier: Apache-2.0
// NextWeights: the weights of a model's next step, on their way into its parameters. Each tensor
// goes its own way, as soon as its gradient of iteration i has been pushed:
//
//   synchronous    pull of w_i into glo_buf | write glo_buf
//   backup model   once w_(i-1) is in glo_buf: local step into loc_buf | write loc_buf;
//                  the pull of w_i into glo_buf begins after the local step; spare memory is
//                  loc_buf itself
//
// Backward may still read the parameters then, so they are written only once Publish has said that
// it is over; spare memory is written at once. A thread of its own makes the local steps and
// writes, front layers first. Whoever waits helps.
//
//   auto next = std::make_shared<NextWeights>(store, tensors, nullptr, clock);
//   next->Begin(i);
//   next->Pushed(tensor, gradient);   // during backward, or after it
//   next->Publish();                  // all tensors were pushed, nobody reads the parameters
//   status = next->AwaitWritten(deadline);
//
// One thread at a time calls Begin, Pushed, Publish, SetMemory and Rewrite. Otherwise thread-safe.
#ifndef SLIMPS_WORKER_EXCHANGE_NEXT_WEIGHTS_H_
#define SLIMPS_WORKER_EXCHANGE_NEXT_WEIGHTS_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "backup_model/backup_model.h"
#include "compress/codec/work_arena.h"
#include "proto/base/clock.h"
#include "proto/base/key.h"
#include "proto/base/mutex.h"
#include "proto/base/thread.h"
#include "worker/device/device.h"
#include "worker/device/place.h"
#include "worker/kvstore.h"

namespace slimps {

// A parameter, and what it is written from.
struct NextTensor {
  Key key;
  std::span<float> values;    // the parameter
  bool spare = false;         // nobody reads `values` before Publish
  Place place = {};           // of `values`
  Device* gpu = nullptr;      // null: `values` is on the host
  BackupBuffer glo_buf = {};  // synchronous alone: pinned for a parameter on a GPU
};

struct OwnedGradient {
  std::span<const float> values = {};
  std::shared_ptr<const void> owner = nullptr;  // null: the model
};

class NextWeights final : public std::enable_shared_from_this<NextWeights> {
 public:
  // `backup`: null in a synchronous exchange. `finished` iterations are over.
  // The pulls that are under way keep this object, which starts none after Stop.
  NextWeights(KVStore* store, std::vector<NextTensor> tensors, std::shared_ptr<BackupModel> backup,
              int64_t finished, const Clock* clock);

  // Starts the thread.
  void Start();

  // Ends the thread. Answers that come later are dropped. Must have been called before the
  // destructor.
  void Stop();

  // Begins `iteration`. Until Publish the parameters stay as they are.
  void Begin(int64_t iteration);

  // Says that the tensor's gradient was pushed; empty: this worker contributed nothing. The local
  // step is by gradient * scale.
  // REQUIRES: called once in each iteration. A model's gradient stays as it is until AwaitMade has
  // returned OK, or Fail has returned.
  void Pushed(size_t tensor, OwnedGradient gradient = {}, double scale = 1);
  bool WasPushed(size_t tensor) const;

  // Lets the weights of the next iteration be written.
  // REQUIRES: all tensors were pushed.
  void Publish();

  // Writes a tensor to `values` from now on. REQUIRES: it is written, and was not pushed since.
  void SetMemory(size_t tensor, std::span<float> values);

  // Lets the newest weights be written once more, where the parameters have others.
  void Rewrite();

  // Wait until all tensors have been
  //   arrived  as the weights of the newest iteration's round
  //   made     as the next iteration's weights (then no local step reads a gradient any more)
  //   written  to their parameters; those on a GPU, for the work that their stream is given then
  //   copied   to the GPUs that their parameters lie on
  // and return the first error.
  // DeadlineExceeded: some are missing at `deadline`.
  [[nodiscard]] absl::Status AwaitArrived(SteadyTime deadline);
  [[nodiscard]] absl::Status AwaitMade(SteadyTime deadline);
  [[nodiscard]] absl::Status AwaitWritten(SteadyTime deadline);
  [[nodiscard]] absl::Status AwaitCopied(SteadyTime deadline);

  // Waits until one tensor is written.
  [[nodiscard]] absl::Status AwaitWritten(size_t tensor, SteadyTime deadline);
  // Returns true if AwaitWritten(tensor) would return OK at once.
  bool IsWritten(size_t tensor) const;

  // Writes glo_buf to the parameter, from the thread that calls. REQUIRES: there is a backup model,
  // and nothing else is due.
  void WriteGlobal(size_t tensor);

  // Returns the first error.
  absl::Status status() const;

  // Ends every wait with the first `why`. Returns when no gradient is read any more.
  void Fail(const absl::Status& why);

  // Returns when the newest tensor of a version arrived; InfinitePast before that.
  // REQUIRES: it is one of the two newest versions.
  SteadyTime last_arrival(int64_t version) const;

  // Returns the time spent in local steps.
  absl::Duration local_update() const;

 private:
  enum class Work { kLocalStep, kWrite };
  struct State {
    int64_t pushed, arrived, made, written;  // the newest iteration or version
    OwnedGradient gradient = {};             // of `pushed`
    double scale = 1;
  };

  void Run();
  // Does what is due of one tensor. REQUIRES: something is.
  void DoNext() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status StepLocally(size_t tensor, int64_t iteration, const State& state);
  absl::Status WriteMade(size_t tensor, int64_t iteration);
  // Writes `weights` to the parameter. A copy to a GPU keeps `owner`.
  void Write(size_t tensor, std::span<const float> weights, std::shared_ptr<const void> owner);
  void Pull(size_t tensor, int64_t version);
  void Arrived(size_t tensor, int64_t version, const absl::Status& pulled);
  void NoteMade(size_t tensor, int64_t iteration) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void AddWork(size_t tensor, Work work) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void NoteError(const absl::Status& why) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Waits until missing() is 0, and does what is due meanwhile.
  absl::Status Await(SteadyTime deadline, absl::FunctionRef<size_t()> missing);

  KVStore* const store_;
  std::vector<NextTensor> tensors_;  // SetMemory alone changes them
  const std::shared_ptr<BackupModel> backup_;
  const Clock* const clock_;
  const WorkArena arena_{/*threads=*/0};

  mutable Mutex mutex_;
  CondVar changed_;
  std::vector<State> states_ ABSL_GUARDED_BY(mutex_);
  std::set<std::pair<size_t, Work>> due_ ABSL_GUARDED_BY(mutex_);
  int working_ ABSL_GUARDED_BY(mutex_) = 0;  // threads that do what was due
  int64_t iteration_ ABSL_GUARDED_BY(mutex_);
  int64_t published_ ABSL_GUARDED_BY(mutex_);
  // Tensors of round iteration_, of iteration_ + 1, and of published_ or since a Rewrite.
  size_t not_arrived_ ABSL_GUARDED_BY(mutex_) = 0;
  size_t not_made_ ABSL_GUARDED_BY(mutex_) = 0;
  size_t not_written_ ABSL_GUARDED_BY(mutex_) = 0;
  size_t copies_ ABSL_GUARDED_BY(mutex_) = 0;  // to GPUs, under way
  std::array<SteadyTime, 2> last_arrivals_ ABSL_GUARDED_BY(mutex_) = {SteadyTime::InfinitePast(),
                                                                      SteadyTime::InfinitePast()};
  absl::Duration local_update_ ABSL_GUARDED_BY(mutex_);
  absl::Status status_ ABSL_GUARDED_BY(mutex_);
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  Thread thread_;
};

}  // namespace slimps

#endif  // SLIMPS_WORKER_EXCHANGE_NEXT_WEIGHTS_H_
