// Sets of moments: what happened while something else did.
//
//   const IntervalSet encoding(spans_of_encode), computing(spans_of_compute), busy(link);
//   encoding.Minus(computing).Minus(busy).Length();   // encoding that nothing hides
//
// Thread-safe: constant after construction.
#ifndef SLIMPS_TOOLS_BENCH_CLUSTER_INTERVALS_H_
#define SLIMPS_TOOLS_BENCH_CLUSTER_INTERVALS_H_

#include <vector>

#include "absl/time/time.h"
#include "proto/base/clock.h"

namespace slimps {

// From `begin` on, up to `end`, which is not part of it.
struct Interval {
  SteadyTime begin, end;

  friend bool operator==(const Interval&, const Interval&) = default;
};

class IntervalSet final {
 public:
  IntervalSet() = default;
  // In any order; they may overlap. Those that end before they begin are empty.
  explicit IntervalSet(std::vector<Interval> intervals);

  IntervalSet Or(const IntervalSet& other) const;
  IntervalSet And(const IntervalSet& other) const;
  IntervalSet Minus(const IntervalSet& other) const;
  absl::Duration Length() const;
  // In order, apart from each other, none empty.
  const std::vector<Interval>& parts() const { return parts_; }

 private:
  std::vector<Interval> parts_;
};

}  // namespace slimps

#endif  // SLIMPS_TOOLS_BENCH_CLUSTER_INTERVALS_H_
