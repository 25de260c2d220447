// signsgd (Bernstein, Wang, Azizzadenesheli, Anandkumar: "signSGD: compressed optimisation for non-convex problems",
// ICML 2018): each element's sign, and the server returns the majority of the workers' signs.
//
//   x = gradient * grad_scale + residual;  x without sign bit sends +1, else -1: a bit has no third value, so +0 counts as
//   positive, -0 as negative
//
// Payload: levels, 1 bit, no scales, value 1: 16 + ceil(n / 8) bytes. How servers combine: Combine::kMajority.
//
// Options: error_feedback=on|off (default off). With it the residual becomes x - (+-1), as for every codec: what is left
// is added to the next gradient. That presumes gradients of magnitude about 1, and a majority does not pass on
// magnitudes anyway; signs scaled by mean |x|, with error feedback that converges, are 1bit.
#ifndef SLIMPS_COMPRESS_CODEC_SIGNSGD_H_
#define SLIMPS_COMPRESS_CODEC_SIGNSGD_H_

#include <memory>

#include "absl/status/statusor.h"
#include "compress/codec/codec.h"

namespace slimps {

absl::StatusOr<std::unique_ptr<Codec>> MakeSignSgdCodec(const CodecSpec& spec,
                                                        const Kernels& kernels);

}  // namespace slimps

#endif  // SLIMPS_COMPRESS_CODEC_SIGNSGD_H_
