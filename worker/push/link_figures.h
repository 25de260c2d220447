// SPDX-License-Identifier: Apache-2.0
// LinkFigures: the link as this worker's pushes see it while all workers use it, for policies that
// predict times (compress/policy/controllers/report.h).
//
//   figures.Sent(now);                          // a push is handed over
//   figures.Answered(now, bytes, round_trip);   // its acknowledgement has come
//   LinkReport link = figures.Take();           // since the last call
//
// A stretch is a time in which at least one push was under way, without a gap.
//
//   start-up        the shortest round trip of a push of at most kSmallBytes
//   time per byte   of the quicker stretches that carried half of the bytes: their time over their
//                   bytes. The other half may have waited for a processor
//
// A stretch of few bytes is nearly all start-up, and gives only an upper bound: else the link would
// seem the slower, the stronger pushes are compressed. So, where stretches take less than
// kConclusive times as long as those of at most kSmallBytes do, the time per byte can only fall.
//
// Pulls have no such times: an answer waits for the other workers' pushes. The link is taken to be
// the same both ways.
//
// Pure. Thread-compatible: PushPipeline's mutex guards it.
#ifndef SLIMPS_WORKER_PUSH_LINK_FIGURES_H_
#define SLIMPS_WORKER_PUSH_LINK_FIGURES_H_

#include <cstddef>
#include <optional>
#include <vector>

#include "absl/time/time.h"
#include "compress/policy/controllers/report.h"
#include "proto/base/clock.h"

namespace slimps {

class LinkFigures final {
 public:
  static constexpr size_t kSmallBytes = 4096;
  static constexpr double kConclusive = 3;

  void Sent(SteadyTime now);

  // REQUIRES: Sent was called for this push.
  void Answered(SteadyTime now, size_t bytes, absl::Duration round_trip);

  // Returns the figures since the last call; 0 where nothing is known.
  LinkReport Take();

 private:
  static constexpr size_t kMaxStretches = 4096;  // between calls of Take; later ones are left out

  struct Stretch {
    double ns = 0, bytes = 0;
  };

  void EndStretch();
  // Returns the time per byte of the stretches since the last call.
  double NsPerByte();

  size_t under_way_ = 0;
  SteadyTime busy_since_;
  Stretch current_;
  std::vector<Stretch> stretches_;  // of more than kSmallBytes
  std::vector<double> small_ns_;    // how long the others took
  std::optional<absl::Duration> shortest_;
  double ns_per_byte_ = 0;  // as it was reported last; 0: never
};

}  // namespace slimps

#endif  // SLIMPS_WORKER_PUSH_LINK_FIGURES_H_
