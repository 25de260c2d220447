// One line of the threshold table: what one tensor size took. Plain data.
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
  // Raw: first byte handed to the transport to the server's acknowledgement.
  absl::Duration t_c = {};
  absl::Duration t_cq = {};  // the same of the compressed push
  absl::Duration t_pq = {};  // the worker's encode plus the server's decode
  uint64_t raw_samples = 0;
  uint64_t compressed_samples = 0;
  uint64_t tensors = 0;  // how many of this size a step has; 0: not known

  absl::Duration t_q() const { return t_cq + t_pq; }
  // t_c / t_q; infinity when t_q is 0 and t_c is not. Meaningless unless complete().
  double gain() const {
    if (t_q() != absl::ZeroDuration()) return absl::FDivDuration(t_c, t_q());
    return t_c > absl::ZeroDuration() ? std::numeric_limits<double>::infinity() : 1.0;
  }
  // Exactly t_c > t_q.
  bool gains() const { return complete() && t_c > t_q(); }
  // What a step of this size counts for.
  double weight() const { return tensors == 0 ? 1 : static_cast<double>(tensors); }
  bool complete() const { return raw_samples > 0 && compressed_samples > 0; }

  friend bool operator==(const ThresholdRow&, const ThresholdRow&) = default;
};

// Sizes are compared by class: class k holds 2^k <= bytes < 2^(k+1).
inline int SizeClass(uint64_t bytes) { return std::bit_width(bytes) - 1; }

}  // namespace slimps

#endif  // SLIMPS_COMPRESS_POLICY_THRESHOLD_ROW_H_
