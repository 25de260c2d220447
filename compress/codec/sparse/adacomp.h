// SPDX-License-Identifier: Apache-2.0
// AdaComp (Chen et al., "AdaComp: Adaptive Residual Gradient Compression for Data-Parallel
// Distributed Training", AAAI 2018, algorithm 2), e.g. "adacomp:lt_conv=50,lt_fc=500". With dW =
// gradient * grad_scale, residual e and bins of L_T elements, the last one shorter:
//
//   G = dW + e           H = G + (scale_factor - 1) * dW           g_max(bin) = max |G| in the bin
//   scale = mean of g_max over all bins of the partition, bins of zeros included: summed in fp64
//           bin by bin within the groups of bins that begin in a block of 4096, then group by
//           group; divided in fp64; rounded to fp32
//   where |H| >= g_max(bin) and G is not 0:   sends sign(G) * scale,   e = G - sign(G) * scale
//   else:                                                              e = G
//
// An element with G = 0 would send 0, so it sends nothing. A bin of zeros sends nothing either.
//
// Payload: compress/format/bins.h, 8 bits per sent element in bins of up to 64, else 16. (The paper
// has 8 bits for bins under 64; 64 itself is this format's extension.)
//
// Options:
//   lt_conv         bin length of convolutions, 1 .. 16384; default 50
//   lt_fc           bin length of all other layers, 1 .. 16384; default 500
//   lt              stands for whichever of the two is not given
//   scale_factor    1 or more; default 2 (the paper tried 1.5 to 3)
//   error_feedback  on or off; default on
#ifndef SLIMPS_COMPRESS_CODEC_SPARSE_ADACOMP_H_
#define SLIMPS_COMPRESS_CODEC_SPARSE_ADACOMP_H_

#include <memory>

#include "absl/status/statusor.h"
#include "compress/codec/codec.h"

namespace slimps {

// InvalidArgument: an option is out of its range.
absl::StatusOr<std::unique_ptr<Codec>> MakeAdaCompCodec(const CodecSpec& spec,
                                                        const Kernels& kernels);

}  // namespace slimps

#endif  // SLIMPS_COMPRESS_CODEC_SPARSE_ADACOMP_H_
