// SPDX-License-Identifier: Apache-2.0
// Measuring that goes on during training. Of every `every` rounds two in a row are measured, in a
// few sizes: the first as decided, the second the other way round. All workers make the same choice
// without talking to each other. Pure.
//
//   MeasuredRounds rounds(/*every=*/20, /*first=*/23);  // 40 as decided, 41 the other way, ...
//   rounds.KindOf(41);                                  // kOtherWay
//   ChooseSizes(totals_by_size, threshold, rounds.PairOf(41));
#ifndef SLIMPS_COMPRESS_POLICY_MEASURED_ROUNDS_H_
#define SLIMPS_COMPRESS_POLICY_MEASURED_ROUNDS_H_

#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <set>

#include "compress/policy/threshold_row.h"

namespace slimps {

enum class RoundKind { kNotMeasured, kAsDecided, kOtherWay };

// Thread-safe: immutable.
class MeasuredRounds final {
 public:
  // A worker reports a pair this many rounds after the pair's first round. The second round is
  // measured too. The third lets its pulls arrive. The worker reports before the fourth.
  static constexpr uint64_t kReportAfter = 3;

  // A decision holds from this many rounds after the last round that any worker had begun when it
  // reported. A worker that has reported waits for the answer before it begins that round.
  static constexpr uint64_t kAnnounceRounds = 4;
  static constexpr uint64_t kShortestEvery = kReportAfter + kAnnounceRounds + 1;

  // How many of a size's newest samples count, one from each pair. One alone would let a single
  // outlier decide; the median of three survives it.
  static constexpr size_t kKeptPairs = 3;

  // A worker reports this generation to say that no other report will come.
  static constexpr uint64_t kLastGeneration = std::numeric_limits<uint64_t>::max();

  // `every` 0: no round is measured. No pair begins before round `first`.
  MeasuredRounds(uint64_t every, uint64_t first) : every_(every), first_(first) {}

  bool on() const { return every_ > 0; }
  RoundKind KindOf(uint64_t round) const;

  // Returns the number of the pair that `round` belongs to or follows. 0: no pair has begun.
  uint64_t PairOf(uint64_t round) const;

  // Returns the round before which `pair` is reported.
  uint64_t ReportRoundOf(uint64_t pair) const { return pair * every_ + kReportAfter; }

 private:
  uint64_t every_;
  uint64_t first_;
};

// Sizes that differ by this factor tell start-up time from rate.
inline constexpr uint64_t kSizeRange = 8;

// Returns the sizes that a pair measures or, for pair 0, the profile. `tensors` maps each size in
// bytes to its number of tensors. The sizes chosen are:
// - those on both sides of the threshold, since the decision depends on them
// - the smallest and the largest, since their times give start-up time and bandwidth
// - one more, another for each pair
// The profile, before any threshold is known, measures the smallest, the largest and up to four
// between them, at equal ratios.
// A size is left out if one tensor of it is over 1/32 of all bytes, so that training is not held
// up. Two exceptions: the smallest size always stays; and if no size that stays is kSizeRange times
// the smallest, the first size that is, or else the largest, is added.
std::set<uint64_t> ChooseSizes(const std::map<uint64_t, uint64_t>& tensors,
                               std::optional<uint64_t> threshold, uint64_t pair);

}  // namespace slimps

#endif  // SLIMPS_COMPRESS_POLICY_MEASURED_ROUNDS_H_
