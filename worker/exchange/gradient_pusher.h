// SPDX-License-Identifier: Apache-2.0
// GradientPusher: sends one step's gradients to the store as backward produces them. At the round's
// end it tells the store which parameters get no contribution from this worker, so that no round is
// left open. These are the parameters without a gradient in this step, or with a non-finite one
// that is to be skipped.
//
// With a clip norm, each worker scales its own gradient of the whole step down to that norm over
// the square root of the number of workers, before any of it is compressed or kept (Lin et al.,
// "Deep Gradient Compression", 2018, section 3.2). The gradient's norm is known only when backward
// has ended, so nothing is pushed before that.
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
  double clip_norm = 0;  // bound on the norm of the sum of all workers' gradients; 0: none
  // Lends gradients to the store instead of letting it copy them (KVStore::PushLent). With kSkip
  // they are copied, since a gradient on loan is found to be non-finite too late to skip it.
  bool lend = false;
  // Keeps what was copied from a GPU until Release, for callers that ask for pushed().
  bool keeps_copies = false;
  absl::Duration timeout = absl::Seconds(60);  // of AwaitLoans
  const Clock* clock = MachineClock();
};

// Owned by the training thread.
class GradientPusher final {
 public:
  // `store` must outlive the pusher.
  GradientPusher(KVStore* store, std::span<const Parameter> parameters, const PushOptions& options);
  ~GradientPusher() { (void)AwaitLoans(); }

  void BeginRound();

  // Pushes the gradient, or holds it back until EndRound if pushes are measured or clipped. Errors
  // are kept for EndRound. A gradient on a GPU is copied to the host first, which this waits for,
  // where it cannot be lent: without `lend`, with NonFinite::kSkip or a clip norm.
  // REQUIRES: `gradient` stays valid and unchanged until EndRound and, with `lend`, AwaitLoans have
  // returned, or until IsRead(index) is true.
  void OnGradient(size_t index, std::span<const float> gradient, const Place& place = {});

  // Pushes a gradient that is zero but for `rows` (KVStore::PushRowSparse), at once. Keeps errors
  // for EndRound; with a clip norm, which needs whole gradients, there is one. Values on a GPU are
  // copied to the host first.
  void OnRows(size_t index, std::span<const int64_t> rows, std::span<const float> values,
              const Place& place = {});

  // Returns true if a gradient of this round is no longer read: its loan is over, or it was copied
  // from a GPU. False: it may be read, or there was none.
  bool IsRead(size_t index) const;

  // Pushes what was held back, and contributes nothing for the other parameters. Returns the
  // round's first error.
  [[nodiscard]] absl::Status EndRound();

  // Waits until the store has given back every gradient, and returns an error that one came back
  // with, as of a push. The destructor waits, too.
  // DeadlineExceeded: the store still reads some: copies from a GPU wait for work that does not
  // end.
  [[nodiscard]] absl::Status AwaitLoans();

  const Key& key(size_t index) const { return keys_[index]; }
  size_t size() const { return keys_.size(); }

  // Returns the whole gradient that was pushed in this round, clipped; empty if none was, or if it
  // was a copy from a GPU and copies are not kept. The view is valid until the next round begins or
  // Release, as long as the model keeps its gradients.
  std::span<const float> pushed(size_t index) const { return pushed_[index].gradient; }

  // Frees what was copied from a GPU for pushed().
  void Release(size_t index) { pushed_[index] = {}; }

  // Returns when the round's first gradient was pushed; InfiniteFuture before that.
  SteadyTime first_push() const { return first_push_; }

  // True if this round's pushes are measured.
  bool measuring() const { return measuring_; }

 private:
  // A copy from a GPU lives as long as it may be read: pinned memory is scarce.
  using Copy = std::shared_ptr<const HostValues>;
  struct HeldBack {
    size_t index;
    std::span<const float> gradient;
    Place place;
    Copy copy = nullptr;  // holds `gradient`; null: the caller does
  };
  struct Pushed {
    std::span<const float> gradient;
    Copy copy;
  };

  void Push(const HeldBack& one);
  absl::Status Lend(const HeldBack& one);
  // True if gradients are lent, and not copied.
  bool lends() const { return options_.lend && options_.non_finite == NonFinite::kStop; }
  // Returns the gradient on the host. Errors name the key.
  absl::StatusOr<HostValues> BringToHost(const HeldBack& one) const;
  // Notes the time of the round's first push.
  void Begin();
  // Keeps an error. True if the push was made.
  bool IsPushed(const absl::Status& pushed);
  // Returns the factor for every held-back gradient.
  double ClipFactor() const;
  void ClipHeldBack();

  // Gradients on loan. Thread-safe.
  class Loans;

  KVStore* const store_;
  const PushOptions options_;
  const std::shared_ptr<Loans> loans_;  // shared with the store's callbacks
  const bool rounds_are_counted_;       // dist_async has no rounds that could be left open
  std::vector<Key> keys_;
  std::vector<size_t> elements_;
  std::vector<Pushed> pushed_;
  std::vector<bool> contributed_;
  std::vector<bool> is_copied_;  // of a GPU's gradients: read already, in this round
  // True in a round whose pushes are measured. They wait until backward has ended, so that they
  // have the machine to themselves.
  bool measuring_ = false;
  // This round's clipped gradients, by index; empty if nothing was clipped.
  std::vector<std::vector<float>> clipped_;
  std::vector<HeldBack> held_back_;
  SteadyTime first_push_ = SteadyTime::InfiniteFuture();
  absl::Status status_;
};

}  // namespace slimps

#endif  // SLIMPS_WORKER_EXCHANGE_GRADIENT_PUSHER_H_
