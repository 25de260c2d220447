// SPDX-License-Identifier: Apache-2.0
// randomk: sends k elements drawn without replacement, the same for all workers in a round (Stich
// et al., "Sparsified SGD with Memory", 2018; unbiased: Wangni et al., "Gradient Sparsification for
// Communication-Efficient Distributed Optimization", 2018), e.g. "randomk:ratio=0.01,seed=7". Every
// element is drawn with probability k / n; compress/format/sparse.h says how.
//
//   scaled=off (default)  sends x
//   scaled=on             sends x * (n / k), with n / k rounded to fp32: unbiased. Needs value=fp32
//
// Stream: PhiloxStream::Of(seed, key, round, kAnyWorker, partition), see compress/format/philox.h.
// Payload: format "sparse", indices seeded: exactly 40 + 4 * k (fp16: 2 * k) bytes.
// Options: ratio (default 0.01) or k (sparse_options.h), seed (default 0), scaled, value=fp32|fp16,
// error_feedback=on|off (default on; off with scaled=on).
#ifndef SLIMPS_COMPRESS_CODEC_SPARSE_RANDOMK_H_
#define SLIMPS_COMPRESS_CODEC_SPARSE_RANDOMK_H_

#include <memory>

#include "absl/status/statusor.h"
#include "compress/codec/codec.h"

namespace slimps {

// InvalidArgument: an option is out of its range, or scaled=on is given with value=fp16.
[[nodiscard]] absl::StatusOr<std::unique_ptr<Codec>> MakeRandomKCodec(const CodecSpec& spec,
                                                                      const Kernels& kernels);

}  // namespace slimps

#endif  // SLIMPS_COMPRESS_CODEC_SPARSE_RANDOMK_H_
