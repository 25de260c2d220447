// SPDX-License-Identifier: Apache-2.0
// The worked example of SlimGC's figure 6.
#ifndef SLIMPS_TESTS_COMPRESS_POLICY_THRESHOLD_EXAMPLE_H_
#define SLIMPS_TESTS_COMPRESS_POLICY_THRESHOLD_EXAMPLE_H_

#include <cmath>

#include "absl/time/time.h"
#include "compress/policy/threshold_table.h"

namespace slimps {

inline absl::Duration Ms(double ms) { return absl::Microseconds(std::llround(ms * 1000)); }

inline ThresholdTable WorkedExample() {
  ThresholdTable table("1bit:scaling=l1");
  table.AddRaw(1'000'000, Ms(28.5));
  table.AddCompressed(1'000'000, Ms(24.3), Ms(6.3));
  table.AddRaw(1'600'000, Ms(30.5));
  table.AddCompressed(1'600'000, Ms(25.3), Ms(6.5));
  table.AddRaw(2'200'000, Ms(40.2));
  table.AddCompressed(2'200'000, Ms(28.3), Ms(6.8));
  table.AddRaw(4'000'000, Ms(75.5));
  table.AddCompressed(4'000'000, Ms(37.3), Ms(8.5));
  return table;
}

}  // namespace slimps

#endif  // SLIMPS_TESTS_COMPRESS_POLICY_THRESHOLD_EXAMPLE_H_
