// SPDX-License-Identifier: Apache-2.0
// atomo: sends few singular vectors, drawn so that their mean is the gradient (Wang et al., "ATOMO:
// Communication-efficient Learning via Atomic Sparsification", NeurIPS 2018, spectral), e.g.
// "atomo:s=3". The partition is taken for a matrix X: the rows of its tensor that have a part in it
// (compress/format/row_grid.h; what lies outside the partition counts as 0).
//
//   X = sum of sigma_i u_i v_i^T                    singular values and vectors
//   p = probabilities of the paper's algorithm 1    from sigma and the sparsity budget s (atoms.h)
//   sends sigma_i / p_i u_i v_i^T for each i drawn  at most s of them, rounded up
//
// The probabilities make the variance least among those that sum to s: unbiased, one exchange, no
// error feedback. Random numbers: the draw's uniform number is (a * 2^21 + b / 2^11) / 2^53, b's
// fraction dropped, with a and b the words 0 and 1 of PhiloxStream::Of(seed, key, round, worker,
// partition), compress/format/philox.h. So each worker draws by itself.
//
// A tensor that is not worthwhile as a matrix (matrix.h, with s rounded up as rank) travels as it
// would without the codec. So do all changes of weights whose shape is unknown. A partition that is
// not worthwhile, of a tensor that is, travels whole: as a matrix of one row, at rank 1 with U =
// (1).
//
// The singular value decomposition takes most of the time, and one thread does it: see
// docs/tuning.md before choosing this codec for large layers.
//
// Payload: format "low rank", 32 + 4 * atoms * (rows + elements of a row) bytes, or 36 + 4 n.
// Options: s (default 3), seed (default 0).
#ifndef SLIMPS_COMPRESS_CODEC_LOWRANK_ATOMO_H_
#define SLIMPS_COMPRESS_CODEC_LOWRANK_ATOMO_H_

#include <memory>

#include "absl/status/statusor.h"
#include "compress/codec/codec.h"

namespace slimps {

// InvalidArgument: an option is out of its range.
[[nodiscard]] absl::StatusOr<std::unique_ptr<Codec>> MakeAtomoCodec(const CodecSpec& spec,
                                                                    const Kernels& kernels);

}  // namespace slimps

#endif  // SLIMPS_COMPRESS_CODEC_LOWRANK_ATOMO_H_
