// SPDX-License-Identifier: Apache-2.0
// signsgd (Bernstein, Wang, Azizzadenesheli, Anandkumar: "signSGD: compressed optimisation for
// non-convex problems", ICML 2018): sends each element's sign, and the server returns the majority
// of the workers' signs. Spec: "signsgd".
//
//   x = gradient * grad_scale + residual
//   x without sign bit sends +1, else -1
//
// A bit has no third value, so +0 counts as positive, -0 as negative.
//
// Payload: levels, 1 bit, no scales, value 1: 16 + ceil(n / 8) bytes. Servers combine by
// Combine::kMajority.
//
// Option: error_feedback=on|off (default off). With it the residual becomes x - (+-1), as for every
// codec, and is added to the next gradient. That presumes gradients of magnitude about 1, and a
// majority does not pass on magnitudes anyway. For signs with error feedback that converges use
// 1bit, which scales them by mean |x|.
#ifndef SLIMPS_COMPRESS_CODEC_QUANTISE_SIGNSGD_H_
#define SLIMPS_COMPRESS_CODEC_QUANTISE_SIGNSGD_H_

#include <memory>

#include "absl/status/statusor.h"
#include "compress/codec/codec.h"

namespace slimps {

// InvalidArgument: an option is out of its range.
absl::StatusOr<std::unique_ptr<Codec>> MakeSignSgdCodec(const CodecSpec& spec,
                                                        const Kernels& kernels);

}  // namespace slimps

#endif  // SLIMPS_COMPRESS_CODEC_QUANTISE_SIGNSGD_H_
