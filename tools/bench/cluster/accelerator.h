// SPDX-License-Identifier: Apache-2.0
// A simulated accelerator: it computes by letting time pass and leaves the CPU free. Work is queued
// as on a GPU's stream: a piece begins when the piece before it has ended and its input is there,
// even if the host asks for it later.
//
//   Accelerator gpu;
//   gpu.Compute(layer.forward, /*not_before=*/weights_arrived);   // returns when it is done
//   gpu.Encode(elements * ns_per_element);   // on the same timeline, but not counted as compute
//
// Owned by the training thread.
#ifndef SLIMPS_TOOLS_BENCH_CLUSTER_ACCELERATOR_H_
#define SLIMPS_TOOLS_BENCH_CLUSTER_ACCELERATOR_H_

#include <algorithm>
#include <vector>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "proto/base/clock.h"
#include "tools/bench/cluster/intervals.h"

namespace slimps {

class Accelerator final {
 public:
  void Compute(absl::Duration work, SteadyTime not_before) { Run(work, not_before, computed_); }
  void Encode(absl::Duration work) { Run(work, clock_, encoded_); }

  // The time when the newest piece of work ended.
  SteadyTime clock() const { return clock_; }
  const std::vector<Interval>& computed() const { return computed_; }
  const std::vector<Interval>& encoded() const { return encoded_; }

 private:
  void Run(absl::Duration work, SteadyTime not_before, std::vector<Interval>& done) {
    const SteadyTime begin = std::max(clock_, not_before);
    clock_ = begin + work;
    if (work <= absl::ZeroDuration()) return;
    if (!done.empty() && done.back().end == begin) {
      done.back().end = clock_;
    } else {
      done.push_back({begin, clock_});
    }
    absl::SleepFor(clock_ - MachineClock()->Now());  // returns at once if that time has passed
  }

  SteadyTime clock_ = MachineClock()->Now();
  std::vector<Interval> computed_, encoded_;
};

}  // namespace slimps

#endif  // SLIMPS_TOOLS_BENCH_CLUSTER_ACCELERATOR_H_
