// SPDX-License-Identifier: Apache-2.0
// dryden: sends the largest positive and the smallest negative elements, each side as its mean,
// e.g. "dryden:ratio=0.003". (Dryden, Jacobs, Moon, Van Essen, "Communication quantization for
// data-parallel training of deep neural networks", MLHPC 2016, adaptive quantisation. It is
// AdaComp's baseline of a fixed proportion; that paper's figure 1 sets it to 0.3 %.)
//
// With x = gradient * grad_scale + residual, P elements x > 0 and N elements x < 0:
//
//   k+ = floor(ratio * P), in fp64, but at least 1 if P > 0; k- = the same of N
//   sent:  the k+ largest x > 0 and the k- smallest x < 0; of equals, those with the lower index
//   value: the mean of the sent x > 0, or of the sent x < 0: the fp64 sum, added in order within
//          blocks, then over blocks, divided by the number sent and rounded to fp32
//
// Payload: format "sparse" with sign and two scales (sparse.h).
// Options: ratio (default 0.003), over 0 and at most 1; error_feedback=on|off (default on).
#ifndef SLIMPS_COMPRESS_CODEC_SPARSE_DRYDEN_H_
#define SLIMPS_COMPRESS_CODEC_SPARSE_DRYDEN_H_

#include <memory>

#include "absl/status/statusor.h"
#include "compress/codec/codec.h"

namespace slimps {

// InvalidArgument: an option is out of its range.
[[nodiscard]] absl::StatusOr<std::unique_ptr<Codec>> MakeDrydenCodec(const CodecSpec& spec,
                                                                     const Kernels& kernels);

}  // namespace slimps

#endif  // SLIMPS_COMPRESS_CODEC_SPARSE_DRYDEN_H_
