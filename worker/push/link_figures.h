// SPDX-License-Identifier: Apache-2.0
// LinkFigures: the link as this worker's pushes see it while all workers use it, for policies that
// predict times (compress/policy/controllers/report.h).
//
//   figures.Answered(round, now, bytes, round_trip);   // a push's acknowledgement has come
//   LinkReport link = figures.Take();                  // since the last call
//
// A push was on the link from the first byte handed over until its answer: its round trip. What
// came before, encoding and waiting for company or for its turn, is no part of it. While it was on
// the link, the bytes that were answered (its own are among them) had to pass:
//
//   round trip = start-up + time per byte * bytes answered meanwhile
//
//   start-up        the median round trip of pushes with at most kSmallBytes answered meanwhile
//   time per byte   the median of the rounds' values. A round's is the least-squares slope of its
//                   pushes, so large pushes decide, and a hiccup spoils one round
//
// Round trips of less than kConclusive times the start-up give only an upper bound of the time per
// byte: the slope with the shortest start-up taken off instead of the median. Else the link would
// seem the slower, the stronger pushes are compressed. The time per byte can only fall then.
//
// Pulls have no such times: an answer waits for the other workers' pushes. The link is taken to be
// the same both ways.
//
// Pure. Thread-compatible: PushPipeline's mutex guards it.
#ifndef SLIMPS_WORKER_PUSH_LINK_FIGURES_H_
#define SLIMPS_WORKER_PUSH_LINK_FIGURES_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <vector>

#include "absl/time/time.h"
#include "compress/policy/controllers/report.h"
#include "proto/base/clock.h"

namespace slimps {

class LinkFigures final {
 public:
  static constexpr size_t kSmallBytes = 4096;
  static constexpr double kConclusive = 3;

  // `round_trip`: 0 if it is not known, since the push was sent more than once.
  void Answered(uint64_t round, SteadyTime now, size_t bytes, absl::Duration round_trip);

  // Returns the figures since the last call, or the ones before where there is nothing new. 0:
  // nothing was known ever.
  LinkReport Take();

 private:
  // More pushes than are under way at a time.
  static constexpr size_t kKeptAnswers = 1 << 14;
  static constexpr size_t kKeptSmall = 1 << 12;  // between calls of Take; later ones are left out

  struct Answer {
    SteadyTime at;
    double bytes_before = 0;  // answered before this one
  };
  // Sums over pushes, of times in ns and of bytes answered meanwhile.
  struct Sums {
    double bytes = 0, bytes2 = 0, bytes_ns = 0;
  };

  double BytesSince(SteadyTime when) const;
  // Returns the time per byte of the rounds since the last call.
  double NsPerByte() const;

  std::deque<Answer> answers_;  // the newest, in order
  double answered_bytes_ = 0;
  std::map<uint64_t, Sums> rounds_;
  std::vector<double> small_ns_;
  double startup_ns_ = 0;   // as it was reported last; 0: never
  double shortest_ns_ = 0;  // of the same pushes
  double ns_per_byte_ = 0;  // the same
};

}  // namespace slimps

#endif  // SLIMPS_WORKER_PUSH_LINK_FIGURES_H_
