// SPDX-License-Identifier: Apache-2.0
// One line of the threshold table: what tensors of one size took. Plain data.
#ifndef SLIMPS_COMPRESS_POLICY_THRESHOLD_ROW_H_
#define SLIMPS_COMPRESS_POLICY_THRESHOLD_ROW_H_

#include <bit>
#include <cstdint>
#include <limits>

#include "absl/time/time.h"

namespace slimps {

// Averages over the samples, in whole nanoseconds.
struct ThresholdRow {
  uint64_t bytes = 0;
  // Raw: from the first byte handed to the transport to the server's acknowledgement.
  absl::Duration t_c = {};
  absl::Duration t_cq = {};  // the same for the compressed push
  absl::Duration t_pq = {};  // the worker's encode plus the server's decode
  uint64_t raw_samples = 0;
  uint64_t compressed_samples = 0;
  uint64_t tensors = 0;  // how many tensors of this size a step has; 0: not known

  absl::Duration t_q() const { return t_cq + t_pq; }

  // Returns t_c / t_q. Infinity if t_q is 0 and t_c is not. Meaningless unless complete().
  double gain() const {
    if (t_q() != absl::ZeroDuration()) return absl::FDivDuration(t_c, t_q());
    return t_c > absl::ZeroDuration() ? std::numeric_limits<double>::infinity() : 1.0;
  }

  // True if complete() and t_c > t_q, compared exactly.
  bool gains() const { return complete() && t_c > t_q(); }

  // Returns how many tensors a step counts for this size.
  double weight() const { return tensors == 0 ? 1 : static_cast<double>(tensors); }
  bool complete() const { return raw_samples > 0 && compressed_samples > 0; }

  friend bool operator==(const ThresholdRow&, const ThresholdRow&) = default;
};

// Sizes are compared by class. Class k holds 2^k <= bytes < 2^(k+1).
inline int SizeClass(uint64_t bytes) { return std::bit_width(bytes) - 1; }

}  // namespace slimps

#endif  // SLIMPS_COMPRESS_POLICY_THRESHOLD_ROW_H_
