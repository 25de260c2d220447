// SPDX-License-Identifier: Apache-2.0
// qsgd (Alistarh et al.: "QSGD: communication-efficient SGD via gradient quantization and
// encoding", NeurIPS 2017), e.g. "qsgd:bits=4,bucket=512". Rounds at random and without bias to
// s = 2^(bits - 1) - 1 levels of each bucket's norm.
//
//   x = gradient * grad_scale + residual
//   norm of a bucket:
//     max:  max|x|
//     l2:   the larger of max|x| and the fp32 root of the fp32 sum of x^2 (16 lanes: element i of
//           the bucket in lane i % 16, folded 8 + 8, 4 + 4, 2 + 2, 1 + 1); max|x| where squares
//           overflow
//     a norm under 2^-80: inverse = scale = 0
//   inverse = the fp32 number below s * 2^16 / norm;  scale = norm / s;
//   t = x * inverse  (each rounded to fp32)
//   level = floor((nearest(t) + r) / 2^16), so -s <= level <= s
//   decodes to level * scale, one product
//
// r is the short (16 random bits) of compress/kernels/loops/xoshiro_loops.h; nearest rounds ties to
// even. A level's expectation is s * x / norm to 2^-17. There are 16 random bits and not 24,
// because drawing them costs more than all else.
//
// Payload: levels of `bits` bits, one scale per bucket:
//
//   2 bits:       16 + 4 * ceil(n / 4096) + 2 * ceil(n / 8) bytes
//   4 and 8 bits: 16 + 4 * ceil(n / bucket) + ceil(n * bits / 8) bytes
//
// The paper's Elias code is left out: it is made bit by bit.
//
// Options:
//   bits            2, 4 or 8; default 4
//   bucket          a power of two from 128 to 4096; default 512. With 2 bits only 4096: that
//                   layout has one scale per 4096
//   norm            l2 or max; default l2
//   seed            default 0
//   error_feedback  on or off; default off
#ifndef SLIMPS_COMPRESS_CODEC_QUANTISE_QSGD_H_
#define SLIMPS_COMPRESS_CODEC_QUANTISE_QSGD_H_

#include <memory>

#include "absl/status/statusor.h"
#include "compress/codec/codec.h"

namespace slimps {

// InvalidArgument: an option is out of its range.
absl::StatusOr<std::unique_ptr<Codec>> MakeQsgdCodec(const CodecSpec& spec, const Kernels& kernels);

}  // namespace slimps

#endif  // SLIMPS_COMPRESS_CODEC_QUANTISE_QSGD_H_
