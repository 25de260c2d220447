// SPDX-License-Identifier: Apache-2.0
// topk: sends the k elements with the largest |x|, exactly; of equals, those with the lower index.
// x = gradient * grad_scale + residual. Spec: e.g. "topk:ratio=0.01". The sparse methods since Aji
// and Heafield ("Sparse Communication for Distributed Gradient Descent", 2017) approximate this
// selection. Error feedback is that of Stich et al., "Sparsified SGD with Memory", 2018.
//
// Payload: format "sparse", exactly k entries, packed or delta-coded, whichever is smaller: at most
// 20 + 4 * ceil(n / 4096) + 4 * k (fp16: 2 * k) + ceil(3 * k / 2) bytes.
// Options: ratio (default 0.01) or k (sparse_options.h), value=fp32|fp16, error_feedback=on|off
// (default on).
#ifndef SLIMPS_COMPRESS_CODEC_SPARSE_TOPK_H_
#define SLIMPS_COMPRESS_CODEC_SPARSE_TOPK_H_

#include <memory>

#include "absl/status/statusor.h"
#include "compress/codec/codec.h"

namespace slimps {

// InvalidArgument: an option is out of its range.
[[nodiscard]] absl::StatusOr<std::unique_ptr<Codec>> MakeTopKCodec(const CodecSpec& spec,
                                                                   const Kernels& kernels);

}  // namespace slimps

#endif  // SLIMPS_COMPRESS_CODEC_SPARSE_TOPK_H_
