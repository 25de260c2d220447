// SPDX-License-Identifier: Apache-2.0
// redsync: sends the k largest x in odd rounds and the k smallest in even ones, all as their mean,
// e.g. "redsync:ratio=0.01". (RedSync: Fang, Fu, Yang, Hsieh, "RedSync: Reducing synchronization
// bandwidth for distributed deep learning training system", JPDC 2019; algorithm 2, trimmed top-k,
// and its quantisation with one sign per round.)
//
// With y = x in odd rounds and -x in even ones, the paper first trims the elements: it keeps those
// over mean + ratio * (max - mean), and lowers that ratio by steps until at least k are left. Then
// it takes the top k of those. Whatever the steps, that is the top k. Here a list of candidates
// over a sampled threshold does the trimming. Only y > 0 are sent: fewer than k if there are fewer.
// Among equals, those with the lower index are sent. Round 0 (unknown) counts as even.
//
//   value = (fp64 sum of the sent x, in order within blocks, then over blocks) / (number sent),
//           rounded to fp32
//
// Payload: format "sparse" with one value for all: at most
// 20 + 4 * ceil(n / 4096) + ceil(3 * k / 2) bytes.
// Options: ratio (default 0.01) or k (sparse_options.h), error_feedback=on|off (default on).
#ifndef SLIMPS_COMPRESS_CODEC_SPARSE_REDSYNC_H_
#define SLIMPS_COMPRESS_CODEC_SPARSE_REDSYNC_H_

#include <memory>

#include "absl/status/statusor.h"
#include "compress/codec/codec.h"

namespace slimps {

// InvalidArgument: an option is out of its range.
[[nodiscard]] absl::StatusOr<std::unique_ptr<Codec>> MakeRedSyncCodec(const CodecSpec& spec,
                                                                      const Kernels& kernels);

}  // namespace slimps

#endif  // SLIMPS_COMPRESS_CODEC_SPARSE_REDSYNC_H_
