// Measuring that goes on during training: of every `every` rounds two in a row are measured, in a few sizes; the first as
// decided, the second the other way round. Every worker comes to the same choice by itself. Pure.
//
//   MeasuredRounds rounds(/*every=*/20, /*first=*/23);      // 40 as decided, 41 the other way round, 60, 61, ...
//   rounds.KindOf(41);                                      // kOtherWay
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

// Immutable.
class MeasuredRounds final {
 public:
  // The rounds after the first of a pair: the second is measured too, the next lets its pulls arrive, and before the one
  // after that the workers report.
  static constexpr uint64_t kReportAfter = 3;
  // A decision holds from this many rounds after the last round that any worker had begun when it reported. A worker
  // waits for the answer to its report before it begins a round so far on.
  static constexpr uint64_t kAnnounceRounds = 4;
  static constexpr uint64_t kShortestEvery = kReportAfter + kAnnounceRounds + 1;
  // Samples of one size that count: one pair's alone would be one sample, and of three the median survives one outlier.
  static constexpr size_t kKeptPairs = 3;

  // The generation of the report with which a worker says that no other will come.
  static constexpr uint64_t kLastGeneration = std::numeric_limits<uint64_t>::max();

  // `every` 0: none. No pair begins before round `first`.
  MeasuredRounds(uint64_t every, uint64_t first) : every_(every), first_(first) {}

  bool on() const { return every_ > 0; }
  RoundKind KindOf(uint64_t round) const;
  // The number of the pair that `round` belongs to or follows; 0: none yet.
  uint64_t PairOf(uint64_t round) const;
  // The round before which pair `pair` is reported.
  uint64_t ReportRoundOf(uint64_t pair) const { return pair * every_ + kReportAfter; }

 private:
  uint64_t every_;
  uint64_t first_;
};

// Sizes so many times apart tell start-up from rate.
inline constexpr uint64_t kSizeRange = 8;

// The sizes that a pair measures, of those that there are (size -> how many tensors): the ones on both sides of the
// threshold, where the decision hangs; the smallest and the largest, whose times give start-up and bandwidth; and one
// more, another each time. No size of which one tensor is over 1/32 of all bytes, so that training is not held up; but always
// the smallest, and where none of the others is kSizeRange times that, the first size that is, or else the largest.
std::set<uint64_t> ChooseSizes(const std::map<uint64_t, uint64_t>& tensors,
                               std::optional<uint64_t> threshold, uint64_t pair);

}  // namespace slimps

#endif  // SLIMPS_COMPRESS_POLICY_MEASURED_ROUNDS_H_
