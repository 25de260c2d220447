// SPDX-License-Identifier: Apache-2.0
// Makes the rows of a small matrix orthonormal, by modified Gram-Schmidt in fp64, each row taken
// twice through the ones before it. ORTHOGONALIZE of PowerSGD (Vogels, Karimireddy, Jaggi:
// "PowerSGD: Practical Low-Rank Gradient Compression for Distributed Optimization", NeurIPS 2019,
// algorithm 1) has the factor's vectors as columns; here each vector lies in a row, in one piece.
//
//   Orthonormalise(/*rows=*/4, /*columns=*/4096, /*turn=*/round, factor);
//
// Pure; thread-safe. The bits depend on the arguments alone.
#ifndef SLIMPS_COMPRESS_CODEC_LOWRANK_ORTHONORMAL_H_
#define SLIMPS_COMPRESS_CODEC_LOWRANK_ORTHONORMAL_H_

#include <cstddef>
#include <cstdint>
#include <span>

namespace slimps {

// Replaces the rows by orthonormal ones that span the same space. A row that depends on those
// before it, or is zero, is replaced by a direction that is new: what is left of a unit vector.
// `turn` chooses which one, so that another turn tries another direction. A factor that has lost
// a rank would otherwise stay without it, since a zero row of P makes a zero row of Q.
// Leaves the matrix alone if a row is not finite. Throws std::bad_alloc.
// REQUIRES: matrix.size() == rows * columns; rows <= columns.
void Orthonormalise(size_t rows, size_t columns, uint64_t turn, std::span<float> matrix);

}  // namespace slimps

#endif  // SLIMPS_COMPRESS_CODEC_LOWRANK_ORTHONORMAL_H_
