// SPDX-License-Identifier: Apache-2.0
// Decorators: what codecs have in common around their encoding, as options of each codec, e.g.
// "topk:ratio=0.01,momentum=nesterov,mu=0.9". Thread-safe: all are pure functions.
//
//   clip=NORM          g becomes g * min(1, NORM / sqrt(N) / |g|). |g| is the partition's L2 norm,
//   clip_workers=N     N is 1 unless given. DGC's local clipping is another: it goes by the norm of
//                      all tensors together, before any is pushed. So dgc and momentum=dgc refuse
//                      clip
//   momentum=none      the default
//   momentum=nesterov  u = mu * u + g; hands on g + mu * u (Zheng et al., "Communication-Efficient
//                      Distributed Blockwise Momentum SGD with Error-Feedback", 2019; BytePS has
//                      the same)
//   momentum=dgc       u = mu * u + g; hands on u, and sets u = 0 where something was sent (DGC:
//                      momentum correction and factor masking). For sparse codecs
//   mu=0.9             the momentum's factor, from 0 to below 1
//   warmup=ROUNDS      for codecs with a ratio. Before their own ratio they send a quarter, a
//                      sixteenth, a sixty-fourth, 0.4 % and 0.1 % for ROUNDS rounds each, as long
//                      as that is more (DGC, section 3.3)
//
// g is gradient * grad_scale. The decorators run in this order, before the codec's own error
// feedback: x = what they hand on + residual. With momentum here a server must apply none, and the
// server's weight decay counts 1 / (1 - mu) times (worker/combination.h).
//
// "none" takes no decorator: a raw push is no encoding. In a job that compresses other tensors,
// Codec::AdvanceMomentum gives a raw push the same momentum. "dgc" has momentum of its own, and
// takes warmup only.
#ifndef SLIMPS_COMPRESS_CODEC_CATALOGUE_DECORATORS_H_
#define SLIMPS_COMPRESS_CODEC_CATALOGUE_DECORATORS_H_

#include <memory>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "compress/codec/catalogue/registry.h"
#include "compress/codec/codec.h"

namespace slimps {

// Returns the decorators' options that the codec of `entry` accepts, for suggestions. An option of
// the codec's own hides a decorator's of the same name.
std::vector<std::string_view> DecoratorOptions(const CodecEntry& entry);

// True if `option` is a decorator's for this codec, even one that the codec refuses.
bool IsDecoratorOption(const CodecEntry& entry, std::string_view option);

// Makes the codec of `entry` from `spec`, with the decorators that its options ask for.
// InvalidArgument: a value is out of its range, or a decorator makes no sense for the codec (the
// message says why).
[[nodiscard]] absl::StatusOr<std::unique_ptr<Codec>> MakeDecorated(const CodecEntry& entry,
                                                                   const CodecSpec& spec,
                                                                   const Kernels& kernels);

}  // namespace slimps

#endif  // SLIMPS_COMPRESS_CODEC_CATALOGUE_DECORATORS_H_
