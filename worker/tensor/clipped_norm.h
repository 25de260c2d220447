// SPDX-License-Identifier: Apache-2.0
// ClippedNorm: what a store tells of a round that was clipped. A plain struct.
#ifndef SLIMPS_WORKER_TENSOR_CLIPPED_NORM_H_
#define SLIMPS_WORKER_TENSOR_CLIPPED_NORM_H_

namespace slimps {

// What became of a round that was clipped by the norm of its mean gradient.
struct ClippedNorm {
  double norm = 0;   // before clipping; may be infinite or NaN
  double scale = 1;  // what the mean gradient was multiplied by; 0: the step was skipped
};

}  // namespace slimps

#endif  // SLIMPS_WORKER_TENSOR_CLIPPED_NORM_H_
