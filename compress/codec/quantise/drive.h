// SPDX-License-Identifier: Apache-2.0
// drive (Vargaftik, Ben-Basat, Portnoy, Mendelson, Ben-Itzhak, Mitzenmacher: "DRIVE: one-bit
// distributed mean estimation", NeurIPS 2021), e.g. "drive:scale=unbiased". Each block of 4096 is
// rotated at random, then its signs are sent with one scale. After a rotation all elements are
// about equally large, so signs lose little. Nothing is kept between pushes.
//
//   x = gradient * grad_scale + residual
//   y = H D x / m     the randomised Hadamard transform of compress/kernels/rotate.h, m elements
//   a = sum of |y|,  q = sum of x^2   (fp32, 16 lanes, as everywhere)
//   S   scale=unbiased:  q / (m a), one division
//       scale=mse:       a / m
//       and a / m too for q under 2^-100 or over fp32
//   decodes to D H (sign(y) S); the sign of y counts, so -0 is negative
//
// In the paper's terms R x = y * root of m, and S * root of m is its scale: |x|^2 / |R x|_1, or |R
// x|_1 / d, which gives the smallest error. With the first, <decoded, x> = |x|^2 for every x, and
// the expectation over uniformly random rotations is x. With a Hadamard transform that nearly holds
// for large blocks. The error is about 0.57 |x|^2 with unbiased, 0.36 |x|^2 with mse.
//
// The signs of D come from the stream of compress/format/philox.h by seed, key, round, worker and
// partition. They include the worker, so that the errors of the workers are independent and their
// mean's error shrinks with their number.
//
// Payload: rotated, of levels with 1 bit and one scale per block. With m elements after rotation,
// which are n padded to a power of two in the last block: 44 + 4 * ceil(n / 4096) + m / 8 bytes.
//
// Options:
//   scale           unbiased or mse; default unbiased
//   seed            default 0
//   error_feedback  on or off; default off. With it, scale=mse leaves the smaller residual
#ifndef SLIMPS_COMPRESS_CODEC_QUANTISE_DRIVE_H_
#define SLIMPS_COMPRESS_CODEC_QUANTISE_DRIVE_H_

#include <memory>

#include "absl/status/statusor.h"
#include "compress/codec/codec.h"

namespace slimps {

// InvalidArgument: an option is out of its range.
absl::StatusOr<std::unique_ptr<Codec>> MakeDriveCodec(const CodecSpec& spec,
                                                      const Kernels& kernels);

}  // namespace slimps

#endif  // SLIMPS_COMPRESS_CODEC_QUANTISE_DRIVE_H_
