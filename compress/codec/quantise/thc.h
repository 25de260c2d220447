// SPDX-License-Identifier: Apache-2.0
// thc (Li, Ben Basat, Vargaftik, Lao, Xu, Mitzenmacher, Yu: "THC: accelerating distributed deep
// learning using tensor homomorphic compression", NSDI 2024), e.g. "thc:seed=1". Rotates each block
// at random, clamps it to a range that all workers share, and rounds it at random to 16 levels that
// are multiples of one step. So a server adds up the workers' integers without decoding them, and
// rotates back once for all of them.
//
//   x = gradient * grad_scale + residual
//   y = H D x / m    the randomised Hadamard transform of compress/kernels/rotate.h, m elements
//   norm             the largest |x| of the block among the workers. |x| is the root of the fp32
//                    sum of x^2 (16 lanes), or max|x| where that sum is under 2^-100 or overflows
//   scale = norm * fp32(t / g) / m, so that the levels span y = -t norm / m .. t norm / m;
//           0 for a norm under 2^-80
//   code             by CodeRounding of compress/kernels/wire_lanes.h with inverse = 0.25 / scale
//                    (0 for a scale of 0) and the shorts of loops/xoshiro_loops.h
//   decodes to D H ((2 T[code] - g) * scale)
//
// After the rotation y * m / norm is about normally distributed. t is the number that a normal
// variable exceeds in magnitude with probability p = 1/32: what lies outside is clamped, and the
// residual keeps it (the paper's section 5.3). g = 30 is the granularity. T is the table of 16
// rising integers from 0 to g that gives the least expected squared error for a normal variable
// truncated to +-t (section 5.2). b = 4, g = 30 and p = 1/32 are the paper's prototype's (section
// 7).
//
// The exchange has one phase (compress/codec/phases.h), in which the workers' norms combine to
// their maximum; then each worker sends payloads. An encoding without phases, as of a change that
// is pulled, takes its own norms.
//
// With scale=previous the norms are the round before's (the newest round to which some worker
// contributed). A worker then sends its payloads at once and its norms, which it found on the way,
// beside them: nobody waits for a round trip, and memory is read once. Rounds without norms before
// them (the first, or with zeros only) begin with the phase. What lies outside the range, as of a
// block whose norm was 0 before, is clamped, and the residual keeps it for the next round.
//
// The norm is one per block of 4096, not one per partition: blocks are rotated apart, so each has a
// scale of its own, and a common one would waste levels on blocks with small gradients. It costs 4
// bytes in 2052.
//
// The rotation's stream leaves out the worker: only equal rotations can be added up. The rounding's
// has it, so that the workers' errors are independent.
//
// Payload: lanes (compress/format/lanes.h), 4 bits: 52 + 4 * ceil(n / 4096) + m / 2 bytes, with m
// elements after rotation.
//
// Options:
//   scale           current or previous; default current. previous needs error_feedback=on
//   seed            default 0
//   error_feedback  on or off; default on, as the paper has it
#ifndef SLIMPS_COMPRESS_CODEC_QUANTISE_THC_H_
#define SLIMPS_COMPRESS_CODEC_QUANTISE_THC_H_

#include <memory>

#include "absl/status/statusor.h"
#include "compress/codec/codec.h"

namespace slimps {

// InvalidArgument: an option is out of its range.
absl::StatusOr<std::unique_ptr<Codec>> MakeThcCodec(const CodecSpec& spec, const Kernels& kernels);

}  // namespace slimps

#endif  // SLIMPS_COMPRESS_CODEC_QUANTISE_THC_H_
