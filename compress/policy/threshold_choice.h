// SPDX-License-Identifier: Apache-2.0
// Chooses, from the times of each size, the size from which on tensors are compressed. Pure.
//
// With a threshold T, sizes below T cost t_c and the others t_q. T is one of the table's sizes, or
// none. The best T has the largest sum of savings, tensors of a size * (t_c - t_q), over all sizes
// from T up. Where the gain crosses 1 only once, T is the first size over 1. A single size that
// scatters about 1 among others that gain nothing does not move T. The times are those of
// DecidedRows: measured times are smoothed and missing ones filled in (link_model.h).
//
//   BestThreshold(table.Rows());                                // a fresh decision
//   FollowedThreshold followed(BestThreshold(table.Rows()));    // for a job that goes on measuring
//   followed.Move(table.Rows());                                // whenever the table is new
#ifndef SLIMPS_COMPRESS_POLICY_THRESHOLD_CHOICE_H_
#define SLIMPS_COMPRESS_POLICY_THRESHOLD_CHOICE_H_

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "compress/policy/threshold_row.h"

namespace slimps {

// Returns the rows with the times by which a threshold is decided, to the nanosecond. While too few
// sizes were measured to fit the link model, all rows stay as they are. Otherwise every row is
// complete, and a row without samples counts one.
std::vector<ThresholdRow> DecidedRows(std::span<const ThresholdRow> rows);

// A step's tensors, sent one after the other, with the times of DecidedRows.
struct StepEstimate {
  uint64_t tensors = 0;  // a size whose number of tensors is not known counts one
  absl::Duration raw;    // time if all of them travel raw
  absl::Duration saved;  // time saved by compressing those from the threshold up
};
StepEstimate EstimateStep(std::span<const ThresholdRow> rows, std::optional<uint64_t> threshold);

// True if some size was measured raw and some size compressed. Without that, BestThreshold's
// nullopt says nothing.
bool AreComparable(std::span<const ThresholdRow> rows);

// Returns the best threshold. nullopt: compressing gains nothing.
std::optional<uint64_t> BestThreshold(std::span<const ThresholdRow> rows);

// The threshold in force while the link is measured again and again. It stays where it is in three
// cases:
// - the best threshold is within one size class, and the sizes between the two take at most 5 %
//   longer than they would under the best one
// - the best threshold is further off, and those sizes take at most 1 % longer
// - the sizes that were measured raw, or those measured compressed, neither are kSizeRange apart
//   (measured_rounds.h) nor include the smallest and the largest: they say nothing about the other
//   sizes
//
// A move of more than one size class, or to or from none, needs two tables in a row that ask for a
// move in the same direction. A move to none needs both to ask for none. The reason is a link that
// changes between two measured rounds: raw times of the one link then stand beside compressed times
// of the other, and by that one table nothing gains, or everything. Thread-compatible.
class FollowedThreshold final {
 public:
  FollowedThreshold() = default;  // no threshold: nothing is compressed
  explicit FollowedThreshold(std::optional<uint64_t> in_force) : in_force_(in_force) {}

  // Moves the threshold if `rows` ask for it. Returns the threshold in force from now on.
  std::optional<uint64_t> Move(std::span<const ThresholdRow> rows);

 private:
  struct Asked {
    std::optional<uint64_t> threshold;
  };

  std::optional<uint64_t> in_force_;
  std::optional<Asked> asked_;  // what the table before asked for and did not get
};

}  // namespace slimps

#endif  // SLIMPS_COMPRESS_POLICY_THRESHOLD_CHOICE_H_
