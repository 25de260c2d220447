// SPDX-License-Identifier: Apache-2.0
// mstopk: sends exactly k elements, about the largest |x|, by bisecting a threshold `passes` times
// (Shi et al., "Towards Scalable Distributed Training of Deep Learning on Public Cloud Clusters",
// MLSys 2021, algorithm 1), e.g. "mstopk:ratio=0.01,passes=30". With a = |x|, all in fp32:
//
//   mean = (fp64 sum over blocks of their fp32 sums, lanes.h) / n   top = max a   low = 0, high = 1
//   `passes` times:  ratio = low + (high - low) / 2    t = mean + ratio * (top - mean)
//                    c = number of a >= t
//     c <= k:  high = ratio, and few = t if c exceeds the c of the present few (0 at first)
//     c > k:   low = ratio, and many = t if c is under the c of the present many (n at first)
//   sent: all a >= few (none if there is no few), then those with many <= a < few (all a < few if
//   there is no many) in the order of their index until there are k
//
// The paper takes a random run of the elements between `many` and `few` instead of the first ones.
// The counts come from one list of candidates instead of `passes` passes over x.
//
// Payload: as topk.
// Options: ratio or k, passes (default 30, 0 to 64), value=fp32|fp16, error_feedback=on|off
// (default on).
#ifndef SLIMPS_COMPRESS_CODEC_SPARSE_MSTOPK_H_
#define SLIMPS_COMPRESS_CODEC_SPARSE_MSTOPK_H_

#include <memory>

#include "absl/status/statusor.h"
#include "compress/codec/codec.h"

namespace slimps {

// InvalidArgument: an option is out of its range.
[[nodiscard]] absl::StatusOr<std::unique_ptr<Codec>> MakeMsTopKCodec(const CodecSpec& spec,
                                                                     const Kernels& kernels);

}  // namespace slimps

#endif  // SLIMPS_COMPRESS_CODEC_SPARSE_MSTOPK_H_
