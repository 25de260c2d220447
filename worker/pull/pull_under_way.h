// SPDX-License-Identifier: Apache-2.0
// PullUnderWay: one pull between Submit and its last answer: what it asks servers for, and the
// memory that their answers go to.
//
//   status = pull.UseMemory(kept);     // its turn has come
//   if (!pull.IsHeld()) pull.NoteHeld();       // then sends pull.Request(i, timeout) for each i
//   status = pull.Merge(i, answer);
//
// Owned by the thread that submits it, and then by the pull thread that has PullMerger's turns.
// Merge of one partition may run beside everything else.
#ifndef SLIMPS_WORKER_PULL_PULL_UNDER_WAY_H_
#define SLIMPS_WORKER_PULL_PULL_UNDER_WAY_H_

#include <cstddef>
#include <cstdint>
#include <list>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "proto/base/clock.h"
#include "proto/slimps.pb.h"
#include "worker/courier/outgoing_item.h"
#include "worker/pull/held_weights.h"
#include "worker/pull/measured_pull.h"
#include "worker/pull/pull_job.h"

namespace slimps {

struct PullUnderWay {
  explicit PullUnderWay(PullJob wanted)
      : job(std::move(wanted)), pending(job.tensor->partitions.size()) {}
  PullUnderWay(const PullUnderWay&) = delete;  // `held` may point into it
  PullUnderWay& operator=(const PullUnderWay&) = delete;

  // Chooses the memory that answers go to: `kept` for a kind that takes changes, else the caller's.
  // ResourceExhausted: no memory for a copy.
  [[nodiscard]] absl::Status UseMemory(HeldWeights* kept);

  // True if the memory holds the wanted version, and no later one can exist.
  bool IsHeld() const;

  // Notes the versions that the memory holds. Requests name them.
  void NoteHeld();

  // Returns the request for one partition, to be answered within `timeout`.
  // REQUIRES: asked_with is filled.
  wire::PullItem Request(size_t partition, absl::Duration timeout) const;

  // Writes or adds an answer (HeldWeights::Merge). The error names key, partition and server.
  // FailedPrecondition: an old version.
  // Otherwise the errors of HeldWeights::Merge.
  [[nodiscard]] absl::Status Merge(size_t partition, const Answer& answer,
                                   SharedMomentum* momentum = nullptr);

  PullJob job;
  SteadyTime deadline = SteadyTime::InfiniteFuture();
  bool here = false;      // the thread that brings the answer merges it
  size_t pending = 0;     // partitions without an answer
  bool admitted = false;  // counted among those under way
  bool has_turn = false;  // it has its key's kept weights (PullTurns)
  absl::Status status;
  HeldWeights* held = nullptr;         // set by UseMemory
  std::optional<HeldWeights> callers;  // the weights in the caller's memory, for a plain pull
  // The version held of each partition when the request was made; empty: nothing is asked for.
  std::vector<std::optional<uint64_t>> asked_with;
  std::optional<MeasuredPull> measured;  // set for a pull that is only measured
};

using Pulls = std::list<std::shared_ptr<PullUnderWay>>;

}  // namespace slimps

#endif  // SLIMPS_WORKER_PULL_PULL_UNDER_WAY_H_
