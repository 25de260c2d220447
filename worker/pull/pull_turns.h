// SPDX-License-Identifier: Apache-2.0
// PullTurns: the weights that changes are added to, one for each key and kind of pull. One pull has
// them at a time; the others wait for their turn.
//
//   Pulls one = {pull};
//   if (HeldWeights* kept = turns.Take(one)) { ... it is this pull's turn ... }
//   // Ends the pull. Returns the pull whose turn comes next, or none.
//   Pulls next = turns.Pass(pull->job);
//
// Thread-compatible.
#ifndef SLIMPS_WORKER_PULL_PULL_TURNS_H_
#define SLIMPS_WORKER_PULL_PULL_TURNS_H_

#include <map>
#include <utility>

#include "worker/pull/held_weights.h"
#include "worker/pull/pull_under_way.h"

namespace slimps {

class PullTurns final {
 public:
  // Returns the weights for the single pull in `one`. If another pull has them, moves it to the
  // waiting ones, leaves `one` empty and returns null.
  HeldWeights* Take(Pulls& one);

  // Ends the turn of a pull. Returns the pull that may Take next; none if no pull waits. Allocates
  // nothing.
  // REQUIRES: the pull has its turn.
  [[nodiscard]] Pulls Pass(const PullJob& job);

  // Forgets which versions are held.
  void ForgetVersions() {
    for (auto& [id, kept] : kept_) kept.held.ForgetVersions();
  }

  // Drops all pulls that wait.
  void Clear();

 private:
  struct Kept {
    explicit Kept(const TensorPlan* tensor) : held(tensor) {}
    HeldWeights held;
    bool busy = false;
    Pulls waiting;
  };

  std::map<std::pair<KeyId, PullKind>, Kept> kept_;  // never erased
};

}  // namespace slimps

#endif  // SLIMPS_WORKER_PULL_PULL_TURNS_H_
