// terngrad (Wen et al.: "TernGrad: ternary gradients to reduce communication in distributed deep learning", NeurIPS
// 2017): each element becomes 0 or plus or minus one scale per partition, at random and unbiased but for what is clipped.
//
//   x = gradient * grad_scale + residual
//   sigma = fp64 root of (sum of x^2) / n: squares in fp32, 16 lanes per block as everywhere, blocks added in fp64
//   s = min(max|x|, fp32(clip * sigma)); clip = 0 or squares that overflow: s = max|x|; under 2^-90: s = 0
//   inverse = 1 / s (0 for s = 0);  a = |x| * inverse;  u < a sends s * sign(x), else 0; u as compress/format/philox.h
//
// Where |x| > s, a > 1: clipped elements always send s. The paper's sigma is about the mean; this one is about 0, which
// equals it where the mean is 0, as a gradient's nearly is, and leaves a tensor of one element or of equal ones whole
// rather than clipping it to nothing.
//
// Payload: levels, 2 bits, no scales, value s: 16 + 2 * ceil(n / 8) bytes. Reads the gradient twice: s needs all of it.
//
// Options: clip (at least 0, default 2.5; 0: none), seed (default 0), error_feedback=on|off (default off).
#ifndef SLIMPS_COMPRESS_CODEC_TERNGRAD_H_
#define SLIMPS_COMPRESS_CODEC_TERNGRAD_H_

#include <memory>

#include "absl/status/statusor.h"
#include "compress/codec/codec.h"

namespace slimps {

absl::StatusOr<std::unique_ptr<Codec>> MakeTernGradCodec(const CodecSpec& spec,
                                                         const Kernels& kernels);

}  // namespace slimps

#endif  // SLIMPS_COMPRESS_CODEC_TERNGRAD_H_
