// qsgd (Alistarh et al.: "QSGD: communication-efficient SGD via gradient quantization and encoding", NeurIPS 2017):
// stochastic rounding to s = 2^(bits - 1) - 1 levels of each bucket's norm, unbiased.
//
//   x = gradient * grad_scale + residual
//   norm of a bucket: max|x|, or with l2 the larger of that and the fp32 root of the fp32 sum of x^2 (16 lanes: element i
//     of the bucket in lane i % 16, folded 8 + 8, 4 + 4, 2 + 2, 1 + 1); the former alone where squares overflow;
//     under 2^-80: inverse = scale = 0
//   inverse = the fp32 number below s * 2^16 / norm;  scale = norm / s;  t = x * inverse  (each rounded to fp32)
//   level = floor((nearest(t) + r) / 2^16), so -s <= level <= s;  decodes to level * scale, one product
//
// with r the short of compress/format/xoshiro.h and nearest to even on ties. A level's expectation is s * x / norm to
// 2^-17: 16 random bits and not 24, since drawing them costs more than all else.
//
// Payload: levels of `bits` bits, one scale per bucket: 16 + 4 * ceil(n / bucket) + ceil(n * bits / 8) bytes, for 2 bits
// 16 + 4 * ceil(n / 4096) + 2 * ceil(n / 8). The paper's Elias code is left out: it is made bit by bit.
//
// Options: bits=2|4|8 (default 4), bucket (a power of two from 128 to 4096, default 512; with 2 bits 4096 alone, whose
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
