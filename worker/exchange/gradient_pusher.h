// SPDX-License-Identifier: Apache-2.0
// GradientPusher: sends one step's gradients to the store as backward produces them. At the round's
// end it tells the store which parameters get no contribution from this worker, so that no round is
// left open. These are the parameters without a gradient in this step, or with a non-finite one
// that is to be skipped.
//
// With a clip norm the servers bound the norm of the workers' mean gradient, of all parameters
// together (KVStore::ClipRound). Gradients still leave during backward. No weight is stepped before
// all of them have arrived.
//
//   GradientPusher pusher(store, model->parameters(), {});
//   pusher.BeginRound();
//   pusher.OnGradient(index, gradient);   // inside backward, any order
//   pusher.OnRows(index, rows, values);   // a gradient of only some rows, such as an embedding's
//   status = pusher.EndRound();           // the rest counts as zero; returns the first error
#ifndef SLIMPS_WORKER_EXCHANGE_GRADIENT_PUSHER_H_
#define SLIMPS_WORKER_EXCHANGE_GRADIENT_PUSHER_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "proto/base/clock.h"
#include "proto/base/key.h"
#include "worker/device/host_values.h"
#include "worker/device/place.h"
#include "worker/exchange/parameter.h"
#include "worker/kvstore.h"

namespace slimps {

// What to do with a gradient that holds NaN or infinity.
enum class NonFinite { kStop, kSkip };

struct PushOptions {
  NonFinite non_finite = NonFinite::kStop;
  // Lends gradients to the store instead of letting it copy them (KVStore::PushLent). With kSkip
  // they are copied, since a gradient on loan is found to be non-finite too late to skip it.
  bool lend = false;
  absl::Duration timeout = absl::Seconds(60);  // of AwaitLoans
  const Clock* clock = MachineClock();
};

// What became of the steps that were clipped.
struct Clipping {
  ClippedNorm newest;          // of the newest step whose norm is known
  uint64_t skipped_steps = 0;  // whose norm was not finite
};

// Owned by the training thread.
class GradientPusher final {
 public:
  // `store` must outlive the pusher.
  GradientPusher(KVStore* store, std::span<const Parameter> parameters, const PushOptions& options);
  ~GradientPusher() { (void)AwaitLoans(); }

  void BeginRound();

  // Bounds the norm of the mean gradient from the next round on; 0: no bound. Every worker makes
  // the same call. REQUIRES: nothing of a round was pushed since the last EndRound.
  // InvalidArgument: `norm` is negative or not finite, or KVStore::SetClipped's.
  [[nodiscard]] absl::Status SetClipNorm(double norm);

  // Pushes the gradient, or holds it back until EndRound if pushes are measured. Errors are kept
  // for EndRound. Returns true if the gradient was pushed. `owner` is kept as long as the gradient
  // may be read; null: the caller keeps it.
  // REQUIRES: `gradient` stays valid and unchanged until EndRound and, with `lend`, AwaitLoans have
  // returned, or until IsRead(index) is true. It is on the host, or lends().
  bool OnGradient(size_t index, std::span<const float> gradient, const Place& place = {},
                  std::shared_ptr<const void> owner = nullptr);

  // Keeps the first error for EndRound.
  void Fail(const absl::Status& why) { status_.Update(why); }

  // True if gradients are lent, and not copied.
  bool lends() const { return options_.lend && options_.non_finite == NonFinite::kStop; }

  // Pushes a gradient that is zero but for `rows` (KVStore::PushRowSparse), at once. Keeps errors
  // for EndRound. Values on a GPU are copied to the host first.
  void OnRows(size_t index, std::span<const int64_t> rows, std::span<const float> values,
              const Place& place = {});

  // Returns true if the loan of a gradient of this round is over. False: it may be read, or there
  // was none.
  bool IsRead(size_t index) const;

  // Pushes what was held back, and contributes nothing for the other parameters. With a clip norm,
  // begins to ask for the round's norm, once AwaitNorm of the round before is over. Returns the
  // round's first error.
  [[nodiscard]] absl::Status EndRound();

  // Waits until the norm of the newest round that has ended is known; OK if it was not clipped.
  // DeadlineExceeded: some worker did not push some key.
  [[nodiscard]] absl::Status AwaitNorm();

  double clip_norm() const { return clip_norm_; }
  const Clipping& clipping() const { return clipping_; }

  // Waits until the store has given back every gradient, and returns an error that one came back
  // with, as of a push. The destructor waits, too.
  // DeadlineExceeded: the store still reads some: copies from a GPU wait for work that does not
  // end.
  [[nodiscard]] absl::Status AwaitLoans();

  const Key& key(size_t index) const { return keys_[index]; }

  // True if a gradient or rows of the parameter were pushed in this round.
  bool contributed(size_t index) const { return contributed_[index]; }

  // Returns when the round's first gradient was pushed; InfiniteFuture before that.
  SteadyTime first_push() const { return first_push_; }

  // True if this round's pushes are measured.
  bool measuring() const { return measuring_; }

 private:
  struct HeldBack {
    size_t index;
    std::span<const float> gradient;
    Place place = {};
    std::shared_ptr<const void> owner = nullptr;
  };

  bool Push(const HeldBack& one);
  absl::Status Lend(const HeldBack& one);
  // Returns the rows' values on the host. Errors name the key.
  absl::StatusOr<HostValues> BringToHost(const HeldBack& one) const;
  // Notes the time of the round's first push.
  void Begin();
  // Keeps an error. True if the push was made.
  bool IsPushed(const absl::Status& pushed);

  // Gradients on loan. Thread-safe.
  class Loans;

  KVStore* const store_;
  const PushOptions options_;
  const std::shared_ptr<Loans> loans_;  // shared with the store's callbacks
  const bool rounds_are_counted_;       // dist_async has no rounds that could be left open
  std::vector<Key> keys_;
  std::vector<size_t> elements_;
  std::vector<bool> contributed_;
  // True in a round whose pushes are measured. They wait until backward has ended, so that they
  // have the machine to themselves.
  bool measuring_ = false;
  std::vector<HeldBack> held_back_;
  SteadyTime first_push_ = SteadyTime::InfiniteFuture();
  absl::Status status_;

  // A round whose norm is asked for. Shared with the store's callback.
  struct Norm;
  double clip_norm_ = 0;
  std::shared_ptr<Norm> norm_;  // null: none is
  Clipping clipping_;
};

}  // namespace slimps

#endif  // SLIMPS_WORKER_EXCHANGE_GRADIENT_PUSHER_H_
