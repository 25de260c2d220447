// SPDX-License-Identifier: Apache-2.0
// dgc (Lin, Han, Mao, Wang, Dally: "Deep Gradient Compression: Reducing the Communication Bandwidth
// for Distributed Training", ICLR 2018), e.g. "dgc:ratio=0.001,mu=0.9". Momentum is accumulated
// locally, and its result waits in the residual until it is large.
//
//   g = gradient * grad_scale;  u: the momentum state, v: the residual
//   momentum correction (section 3.2)   u = mu * u + g             v = v + u
//     with nesterov=on (appendix B)     u = mu * (u + g)           v = v + (u + g)
//   sent: v of the k elements with the largest |v|; of equals, those with the lower index
//   momentum factor masking             where it was sent: u = 0 and v = v - what was sent (0, with
//                                       value=fp32)
//
// The paper estimates the k-th |v| from a sample of 0.1 to 1 %. It looks again among the chosen if
// the estimate let through far too many. Here a sample sets the floor over which candidates are
// listed, and the exact k-th |v| is always found among them. What is sent depends on no sample, and
// the cost is the same.
//
// The warm-up (section 3.3) is an option of every codec with a ratio: decorators.h. Local clipping
// (section 3.2) goes by the norm of all tensors together, before any is pushed, so the caller does
// it. DecayFactor in worker/combination.h corrects weight decay for the momentum.
//
// Payload: format "sparse", exactly k entries, as topk's. Bytes of memory per element: gradient 4,
// u and v 8 each. A server's optimizer must have no momentum.
//
// Options: ratio (default 0.001) or k (sparse_options.h), mu (default 0.9), nesterov=on|off
// (default off), value=fp32|fp16.
#ifndef SLIMPS_COMPRESS_CODEC_SPARSE_DGC_H_
#define SLIMPS_COMPRESS_CODEC_SPARSE_DGC_H_

#include <memory>

#include "absl/status/statusor.h"
#include "compress/codec/codec.h"

namespace slimps {

// InvalidArgument: an option is out of its range.
[[nodiscard]] absl::StatusOr<std::unique_ptr<Codec>> MakeDgcCodec(const CodecSpec& spec,
                                                                  const Kernels& kernels);

}  // namespace slimps

#endif  // SLIMPS_COMPRESS_CODEC_SPARSE_DGC_H_
