// qsgd (Alistarh et al.: "QSGD: communication-efficient SGD via gradient quantization and encoding", NeurIPS 2017):
// stochastic rounding to s = 2^(bits - 1) - 1 levels of each bucket's norm, unbiased.
//
//   x = gradient * grad_scale + residual
//   norm of a bucket: max|x|, or with l2 the larger of that and the fp32 root of the fp32 sum of x^2 (16 lanes: element i
//     of the bucket in lane i % 16, folded 8 + 8, 4 + 4, 2 + 2, 1 + 1); the former alone where squares overflow;
//     under 2^-90: inverse = scale = 0
//   inverse = s / norm;  scale = norm / s;  a = |x| * inverse       (each rounded to fp32)
//   level = floor(a) + (u < a - floor(a) ? 1 : 0), at most s;  decodes to sign(x) * level * scale, one product
//
// with u of compress/format/philox.h. A level's expectation is a to 2^-24. Where bits = 2, s = 1: u < a sends scale.
//
// Payload: levels of `bits` bits, one scale per bucket: 16 + 4 * ceil(n / bucket) + ceil(n * bits / 8) bytes, for 2 bits
// 16 + 4 * ceil(n / 4096) + 2 * ceil(n / 8). The paper's Elias code is left out: it is made bit by bit.
//
// Options: bits=2|4|8 (default 4), bucket (a power of two from 64 to 4096, default 512; with 2 bits 4096 alone, whose
// layout has one scale per 4096), norm=l2|max (default l2), seed (default 0), error_feedback=on|off (default off).
#ifndef SLIMPS_COMPRESS_CODEC_QSGD_H_
#define SLIMPS_COMPRESS_CODEC_QSGD_H_

#include <memory>

#include "absl/status/statusor.h"
#include "compress/codec/codec.h"

namespace slimps {

absl::StatusOr<std::unique_ptr<Codec>> MakeQsgdCodec(const CodecSpec& spec, const Kernels& kernels);

}  // namespace slimps

#endif  // SLIMPS_COMPRESS_CODEC_QSGD_H_
