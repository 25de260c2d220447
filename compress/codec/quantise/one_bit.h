// SPDX-License-Identifier: Apache-2.0
// 1bit: sends one bit per element, by `scaling`, e.g. "1bit:scaling=l1". x = gradient * grad_scale
// + residual, in blocks of kBlockElements. Here x >= 0 means that the sign bit is clear: -0 counts
// as negative.
//
//   l1 (default)  x >= 0 sends +s, else -s; s = mean of the block's |x|
//                 (EF-signSGD: Karimireddy et al., "Error Feedback Fixes SignSGD", 2019)
//   two_mean      x >= 0 sends the mean of those, else the mean of the others; 0 if there is none
//                 (Seide et al., "1-Bit Stochastic Gradient Descent", 2014)
//   none          x > threshold sends +1, else -1; no scale: what MXNet calls 1bit. `threshold`
//                 defaults to 0
//
// Options: scaling, threshold (with scaling=none only), error_feedback=on|off (default on).
#ifndef SLIMPS_COMPRESS_CODEC_QUANTISE_ONE_BIT_H_
#define SLIMPS_COMPRESS_CODEC_QUANTISE_ONE_BIT_H_

#include <memory>

#include "absl/status/statusor.h"
#include "compress/codec/codec.h"

namespace slimps {

// InvalidArgument: an option is out of its range, or threshold is given with another scaling.
absl::StatusOr<std::unique_ptr<Codec>> MakeOneBitCodec(const CodecSpec& spec,
                                                       const Kernels& kernels);

}  // namespace slimps

#endif  // SLIMPS_COMPRESS_CODEC_QUANTISE_ONE_BIT_H_
