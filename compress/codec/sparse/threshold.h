// SPDX-License-Identifier: Apache-2.0
// threshold: sends the elements with |x| >= tau (Strom, "Scalable Distributed DNN Training Using
// Commodity GPU Cloud Computing", Interspeech 2015), e.g. "threshold:tau=0.5". x = gradient *
// grad_scale + residual. value=tau sends tau with the sign of x, as the paper does, and the rest
// stays in the residual; value=fp32 sends x.
//
// Payload: format "sparse", one scale and signs, or fp32. With s elements sent (n at the worst) at
// most 20 + 4 * ceil(n / 4096) + ceil(s / 8) (fp32: 4 * s) + ceil(3 * s / 2) bytes.
// Options: tau (default 0.5, over 0), value=tau|fp32 (default tau), error_feedback=on|off (default
// on).
#ifndef SLIMPS_COMPRESS_CODEC_SPARSE_THRESHOLD_H_
#define SLIMPS_COMPRESS_CODEC_SPARSE_THRESHOLD_H_

#include <memory>

#include "absl/status/statusor.h"
#include "compress/codec/codec.h"

namespace slimps {

// InvalidArgument: an option is out of its range.
[[nodiscard]] absl::StatusOr<std::unique_ptr<Codec>> MakeThresholdCodec(const CodecSpec& spec,
                                                                        const Kernels& kernels);

}  // namespace slimps

#endif  // SLIMPS_COMPRESS_CODEC_SPARSE_THRESHOLD_H_
