// SPDX-License-Identifier: Apache-2.0
#include "worker/pull/pull_turns.h"

namespace slimps {

HeldWeights* PullTurns::Take(Pulls& one) {
  PullUnderWay& pull = *one.front();
  const PullJob& job = pull.job;
  Kept& kept = kept_.try_emplace({job.tensor->key.id(), job.kind}, job.tensor).first->second;
  if (kept.busy) {
    kept.waiting.splice(kept.waiting.end(), one);
    return nullptr;
  }
  kept.busy = true;
  pull.has_turn = true;
  return &kept.held;
}

Pulls PullTurns::Pass(const PullJob& job) {
  Kept& kept = kept_.at({job.tensor->key.id(), job.kind});
  Pulls next;
  kept.busy = false;
  if (!kept.waiting.empty()) next.splice(next.begin(), kept.waiting, kept.waiting.begin());
  return next;
}

void PullTurns::Clear() {
  for (auto& [key, kept] : kept_) kept.waiting.clear();
}

}  // namespace slimps
