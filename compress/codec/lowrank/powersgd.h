// SPDX-License-Identifier: Apache-2.0
// powersgd (Vogels, Karimireddy, Jaggi: "PowerSGD: Practical Low-Rank Gradient Compression for
// Distributed Optimization", NeurIPS 2019), e.g. "powersgd:rank=4". The tensor is a matrix X of n
// rows (its first dimension) and m columns (all others). Two phases (compress/codec/phases.h), with
// factors of the whole tensor; their vectors lie in rows here:
//
//   X   = gradient * grad_scale + residual
//   P_w = X Q                   "p", r vectors of n: summed and made orthonormal by the server
//   Q_w = X^T P                 "q", r vectors of m: summed by the server, Q
//   residual = X - P Q_w^T      algorithm 2 of the paper, line 9: what this worker's own Q_w leaves
//   payload  = P Q^T            the sum over workers of what they sent, in format "low rank"
//
// Q of one round begins the next (warm start); it is the same for all workers. Before the first
// round Q is drawn, and later each vector that is zero: standard normal numbers by Box and Muller
// from words 2 i and 2 i + 1 of PhiloxStream::Of(seed, key, 0, kAnyWorker, 0), the cosine for
// number 2 i and the sine for number 2 i + 1.
//
// A policy may change the rank from round to round. A smaller one goes on with the first vectors of
// Q, and forgets the others. A larger one goes on with all of them, and draws the rest. Vectors are
// made orthonormal in their order, so the first r of them are those that rank r alone would have.
//
// The payload is a sum, so exactly one worker sends it for each partition, and the others send
// ABSENT: worker contributors[(partition + round) mod contributors]. An optimizer that averages
// counts them all. Each payload repeats Q, so a tensor is cut into few partitions, at rows.
//
// A tensor with one dimension, or whose factors take more than half of its numbers (matrix.h),
// travels as it would without the codec.
//
// Codec::Encode, for callers without servers, is the exchange of one worker alone, and Q is drawn
// anew in each encoding. A partition whose shape is unknown or not worthwhile travels whole there:
// as a matrix of one row, at rank 1 with U = (1).
//
// Options: rank (default 4), seed (default 0). Error feedback is part of the method.
#ifndef SLIMPS_COMPRESS_CODEC_LOWRANK_POWERSGD_H_
#define SLIMPS_COMPRESS_CODEC_LOWRANK_POWERSGD_H_

#include <memory>

#include "absl/status/statusor.h"
#include "compress/codec/codec.h"

namespace slimps {

// InvalidArgument: an option is out of its range.
[[nodiscard]] absl::StatusOr<std::unique_ptr<Codec>> MakePowerSgdCodec(const CodecSpec& spec,
                                                                       const Kernels& kernels);

}  // namespace slimps

#endif  // SLIMPS_COMPRESS_CODEC_LOWRANK_POWERSGD_H_
