// From what sizes take to the size from which on they are compressed. Pure.
//
// A threshold T makes sizes below it cost t_c and the others t_q. Of the sizes in the table (and of none) the best T is
// the one whose savings, tensors of a size * (t_c - t_q), summed from T up, are largest: where the gain stays over 1 from a
// size on, that size; and one size that scatters about 1 between others that gain neither ends nor begins anything. The
// times are those of DecidedRows: measured ones smoothed, missing ones filled in (link_model.h).
//
//   BestThreshold(table.Rows());                                // a fresh decision
//   FollowedThreshold followed(BestThreshold(table.Rows()));    // of a job that goes on measuring
//   followed.Move(table.Rows());                                // as often as the table is new
#ifndef SLIMPS_COMPRESS_POLICY_THRESHOLD_CHOICE_H_
#define SLIMPS_COMPRESS_POLICY_THRESHOLD_CHOICE_H_

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "compress/policy/threshold_row.h"

namespace slimps {

// The rows with the times that a threshold is decided by, to the nanosecond; where nothing can be said of a row's, it stays
// incomplete. A row counts one sample where it has none.
std::vector<ThresholdRow> DecidedRows(std::span<const ThresholdRow> rows);

// A step's tensors, sent one after the other, as DecidedRows has them.
struct StepEstimate {
  uint64_t tensors = 0;  // where a size's number is not known, one
  absl::Duration raw;    // all of them raw
  absl::Duration saved;  // by compressing those from the threshold up
};
StepEstimate EstimateStep(std::span<const ThresholdRow> rows, std::optional<uint64_t> threshold);

// nullopt: nothing gains.
std::optional<uint64_t> BestThreshold(std::span<const ThresholdRow> rows);

// What is in force while the link is measured again and again. It stays where the best threshold is within one size class of it
// and the sizes between the two take less than 5 % longer than they need; further off, less than 1 %; and where sizes that
// were measured, raw or compressed, neither are kSizeRange apart (measured_rounds.h) nor the smallest and the largest:
// they say nothing of the others.
//
// Further than one size class, and to or from none, it moves only when two tables in a row ask for that in the same
// direction; to none, when both ask for none: a link that changes between two measured rounds leaves raw times of the one
// beside compressed times of the other, and for one table nothing gains, or everything. Thread-compatible.
class FollowedThreshold final {
 public:
  FollowedThreshold() = default;  // none
  explicit FollowedThreshold(std::optional<uint64_t> in_force) : in_force_(in_force) {}

  // Returns what is in force now.
  std::optional<uint64_t> Move(std::span<const ThresholdRow> rows);

 private:
  struct Asked {
    std::optional<uint64_t> threshold;
  };

  std::optional<uint64_t> in_force_;
  std::optional<Asked> asked_;  // by the table before, and not given
};

}  // namespace slimps

#endif  // SLIMPS_COMPRESS_POLICY_THRESHOLD_CHOICE_H_
