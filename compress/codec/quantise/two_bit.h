// SPDX-License-Identifier: Apache-2.0
// 2bit, as MXNet has it, e.g. "2bit:threshold=0.5". With x = gradient * grad_scale + residual:
//
//   x >= threshold sends +threshold, x <= -threshold sends -threshold, else 0
//
// The threshold is absolute: it presumes gradients summed over the batch.
//
// Options: threshold (over 0, default 0.5), error_feedback=on|off (default on).
#ifndef SLIMPS_COMPRESS_CODEC_QUANTISE_TWO_BIT_H_
#define SLIMPS_COMPRESS_CODEC_QUANTISE_TWO_BIT_H_

#include <memory>

#include "absl/status/statusor.h"
#include "compress/codec/codec.h"

namespace slimps {

// InvalidArgument: an option is out of its range.
absl::StatusOr<std::unique_ptr<Codec>> MakeTwoBitCodec(const CodecSpec& spec,
                                                       const Kernels& kernels);

}  // namespace slimps

#endif  // SLIMPS_COMPRESS_CODEC_QUANTISE_TWO_BIT_H_
