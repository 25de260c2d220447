// Sends one step's gradients to the store as backward produces them, and says of every parameter
// that had none in this step (or a non-finite one that is to be skipped) that this worker
// contributes nothing: no round is left open.
//
// With a clip norm the whole gradient of the step is scaled down to that norm over the square root of the number of workers:
// each worker's own, before anything of it is compressed or kept (Lin et al., "Deep Gradient Compression", 2018, section
// 3.2). Its norm is known when backward has ended, so nothing leaves before that.
//
//   GradientPusher pusher(store, model->parameters(), {});
//   pusher.BeginRound();
//   pusher.OnGradient(index, gradient);   // inside backward, any order
//   status = pusher.EndRound();           // the rest counts as zero; the first error of the round
#ifndef SLIMPS_WORKER_EXCHANGE_GRADIENT_PUSHER_H_
#define SLIMPS_WORKER_EXCHANGE_GRADIENT_PUSHER_H_

#include <cstddef>
#include <span>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "proto/base/clock.h"
#include "proto/base/key.h"
#include "worker/exchange/parameter.h"
#include "worker/kvstore.h"

namespace slimps {

// What to do with a gradient that holds NaN or infinity.
enum class NonFinite { kStop, kSkip };

struct PushOptions {
  NonFinite non_finite = NonFinite::kStop;
  double clip_norm = 0;  // of the sum of all workers' gradients; 0: none
  const Clock* clock = MachineClock();
};

// Owned by the training thread.
class GradientPusher final {
 public:
  // `store` must outlive the pusher.
  GradientPusher(KVStore* store, std::span<const Parameter> parameters, const PushOptions& options);

  void BeginRound();
  void OnGradient(size_t index, std::span<const float> gradient);
  [[nodiscard]] absl::Status EndRound();

  const Key& key(size_t index) const { return keys_[index]; }
  size_t size() const { return keys_.size(); }
  // What was pushed in this round, clipped; empty where nothing was. Valid until the next round begins, as long as the
  // model keeps its gradients.
  std::span<const float> pushed(size_t index) const { return pushed_[index]; }
  // When the first gradient of this round went out; InfiniteFuture before.
  SteadyTime first_push() const { return first_push_; }
  size_t skipped() const { return skipped_; }
  // Whether pushes of this round are measured.
  bool measuring() const { return measuring_; }

 private:
  void Push(size_t index, std::span<const float> gradient);
  // What each held back gradient is multiplied by.
  double ClipFactor() const;
  void ClipHeldBack();

  KVStore* const store_;
  const PushOptions options_;
  const bool rounds_are_counted_;  // dist_async has none that could be left open
  std::vector<Key> keys_;
  std::vector<size_t> elements_;
  std::vector<std::span<const float>> pushed_;
  // In this round: pushes are measured, and wait until backward has ended and leaves the machine to them alone.
  bool measuring_ = false;
  std::vector<std::vector<float>>
      clipped_;  // this round's, by index; empty where they are as backward made them
  std::vector<std::pair<size_t, std::span<const float>>> held_back_;
  SteadyTime first_push_ = SteadyTime::InfiniteFuture();
  absl::Status status_;
  size_t skipped_ = 0;
};

}  // namespace slimps

#endif  // SLIMPS_WORKER_EXCHANGE_GRADIENT_PUSHER_H_
