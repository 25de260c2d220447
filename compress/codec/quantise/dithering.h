// SPDX-License-Identifier: Apache-2.0
// dithering (Horvath et al.: "Natural compression for distributed deep learning", 2019, section 4;
// as BytePS has it), e.g. "dithering:k=7,partition=natural". Rounds at random and without bias to k
// levels of one norm per partition. The levels, times the norm:
//
//   linear   0, 1/k, 2/k .. 1                 (QSGD's)
//   natural  0, 2^(1-k), 2^(2-k) .. 1/2, 1    (powers of two)
//
//   x = gradient * grad_scale + residual
//   norm: max:  max|x|
//         l2:   the larger of max|x| and fp32(fp64 root of the sum of x^2: squares in fp32, 16
//               lanes per block of 4096, blocks added in fp64); max|x| where squares overflow
//         a norm under 2^-80: inverse = scale = 0
//   linear:  inverse = the fp32 number below k * 2^16 / norm, scale = norm / k,
//            t = x * inverse (each rounded to fp32)
//     level = floor((nearest(t) + r) / 2^16), so -k <= level <= k
//     decodes to level * scale, one product
//   natural: inverse = 2^(k+15) / norm, scale = norm, t = |x| * inverse
//     t < 2^16:  |level| = floor((nearest(t) + r) / 2^16), 0 or 1
//     t >= 2^16: |level| = exponent of (bits of t + 128 r + 64) - 15: the power of two below or
//                above; above with the mantissa's probability. Decodes to
//                sign(x) * 2^(|level| - k) * scale, one product; +0 for level 0
//
// r is the short (16 random bits) of compress/kernels/loops/xoshiro_loops.h; nearest rounds ties to
// even. A level's expectation is exact to 2^-17 of the step between its neighbours.
//
// Payload: levels of 4 bits if k <= 7, else 8; no scales, value `scale`, map linear or natural:
// 16 + ceil(n / 2) or 16 + n bytes. BytePS codes distances and levels by Elias' delta code instead,
// bit by bit. Reads the gradient twice.
//
// Options (BytePS's name in brackets):
//   k               1 .. 127, natural 1 .. 32; default 7 (compressor_k)
//   partition       linear or natural; default linear (dithering_partition)
//   normalize       max or l2; default max (dithering_normalize)
//   seed            default 0
//   error_feedback  on or off; default off
#ifndef SLIMPS_COMPRESS_CODEC_QUANTISE_DITHERING_H_
#define SLIMPS_COMPRESS_CODEC_QUANTISE_DITHERING_H_

#include <memory>

#include "absl/status/statusor.h"
#include "compress/codec/codec.h"

namespace slimps {

// InvalidArgument: an option is out of its range.
absl::StatusOr<std::unique_ptr<Codec>> MakeDitheringCodec(const CodecSpec& spec,
                                                          const Kernels& kernels);

}  // namespace slimps

#endif  // SLIMPS_COMPRESS_CODEC_QUANTISE_DITHERING_H_
