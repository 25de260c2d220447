// SPDX-License-Identifier: Apache-2.0
// Sets of moments, to compute for how long one thing happened while another did.
//
//   const IntervalSet encoding(spans_of_encode), computing(spans_of_compute), busy(link);
//   encoding.Minus(computing).Minus(busy).Length();   // time of encoding that nothing hides
//
// Thread-safe: constant after construction.
#ifndef SLIMPS_TOOLS_BENCH_CLUSTER_INTERVALS_H_
#define SLIMPS_TOOLS_BENCH_CLUSTER_INTERVALS_H_

#include <vector>

#include "absl/time/time.h"
#include "proto/base/clock.h"

namespace slimps {

// The moments from `begin` up to `end`, without `end`.
struct Interval {
  SteadyTime begin, end;

  friend bool operator==(const Interval&, const Interval&) = default;
};

class IntervalSet final {
 public:
  IntervalSet() = default;
  // The intervals may be in any order and may overlap. One that ends before it begins is empty.
  explicit IntervalSet(std::vector<Interval> intervals);

  IntervalSet Or(const IntervalSet& other) const;
  IntervalSet And(const IntervalSet& other) const;
  IntervalSet Minus(const IntervalSet& other) const;
  absl::Duration Length() const;

  // The set as intervals: sorted, not touching each other, none empty.
  const std::vector<Interval>& parts() const { return parts_; }

 private:
  std::vector<Interval> parts_;
};

}  // namespace slimps

#endif  // SLIMPS_TOOLS_BENCH_CLUSTER_INTERVALS_H_
