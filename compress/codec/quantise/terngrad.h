// SPDX-License-Identifier: Apache-2.0
// terngrad (Wen et al.: "TernGrad: ternary gradients to reduce communication in distributed deep
// learning", NeurIPS 2017), e.g. "terngrad:clip=2.5". Each element becomes 0 or plus or minus one
// scale per partition, at random and without bias except for what is clipped.
//
//   x = gradient * grad_scale + residual
//   sigma = fp64 root of (sum of x^2) / n: squares in fp32, 16 lanes per block as everywhere,
//           blocks added in fp64
//   s = min(max|x|, fp32(clip * sigma))
//       clip = 0 or squares that overflow: s = max|x|;  s under 2^-80: s = 0
//   inverse = the fp32 number below 2^16 / s (0 for s = 0)
//   t = x * inverse, clamped to +-2^16  (each rounded to fp32)
//   level = floor((nearest(t) + r) / 2^16): -1, 0 or 1;  decodes to level * s
//
// r is the short (16 random bits) of compress/kernels/loops/xoshiro_loops.h; nearest rounds ties to
// even. A level's expectation is x / s to 2^-17. Clipped elements always send s.
//
// The paper's sigma is about the mean; this one is about 0. The two are equal if the mean is 0, as
// a gradient's nearly is. A tensor of one element, or of equal ones, stays whole; about the mean it
// would be clipped to nothing.
//
// Payload: levels, 2 bits, no scales, value s: 16 + 2 * ceil(n / 8) bytes. Reads the gradient
// twice, because s depends on all of it.
//
// Options: clip (at least 0, default 2.5; 0: none), seed (default 0), error_feedback=on|off
// (default off).
#ifndef SLIMPS_COMPRESS_CODEC_QUANTISE_TERNGRAD_H_
#define SLIMPS_COMPRESS_CODEC_QUANTISE_TERNGRAD_H_

#include <memory>

#include "absl/status/statusor.h"
#include "compress/codec/codec.h"

namespace slimps {

// InvalidArgument: an option is out of its range.
absl::StatusOr<std::unique_ptr<Codec>> MakeTernGradCodec(const CodecSpec& spec,
                                                         const Kernels& kernels);

}  // namespace slimps

#endif  // SLIMPS_COMPRESS_CODEC_QUANTISE_TERNGRAD_H_
