// What codecs have in common around their encoding, as options of each:
//
//   clip=NORM          g becomes g * min(1, NORM / sqrt(clip_workers) / |g|), |g| the partition's L2 norm; N is 1 unless
//   clip_workers=N     given. Not DGC's local clipping, which goes by the norm of all tensors together: that is clip_norm of
//                      worker/exchange/gradient_pusher.h, and dgc and momentum=dgc refuse clip
//   momentum=nesterov  u = mu * u + g; what goes on is g + mu * u (Zheng et al., "Communication-Efficient Distributed
//                      Blockwise Momentum SGD with Error-Feedback", 2019; BytePS has the same)
//   momentum=dgc       u = mu * u + g; what goes on is u, and u = 0 where something was sent (DGC: momentum correction
//                      and factor masking). For sparse codecs
//   mu=0.9             from 0 to below 1
//   warmup=ROUNDS      for codecs with a ratio: they send a quarter, a sixteenth, a sixty-fourth, 0.4 % and 0.1 % for
//                      ROUNDS rounds each before their own ratio, as far as those are more (DGC, section 3.3)
//
// g is gradient * grad_scale. In that order, before the codec's own error feedback: x = what goes on + residual. With
// momentum here a server's must be off, and its weight decay counts 1 / (1 - mu) times (worker/combination.h). "none" takes none of them: a raw push is no encoding. Where it is a raw push in a
// job that compresses other tensors, Codec::AdvanceMomentum gives it the same momentum. "dgc" has momentum of its own, and
// takes warmup.
#ifndef SLIMPS_COMPRESS_CODEC_DECORATORS_H_
#define SLIMPS_COMPRESS_CODEC_DECORATORS_H_

#include <memory>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "compress/codec/codec.h"
#include "compress/codec/registry.h"

namespace slimps {

// The decorators' options that entry's codec may be given, for suggestions. Options of the codec itself come first where
// names are the same.
std::vector<std::string_view> DecoratorOptions(const CodecEntry& entry);

// Whether `option` is a decorator's here, even one that this codec refuses.
bool IsDecoratorOption(const CodecEntry& entry, std::string_view option);

// entry's codec by `spec`, decorated as its options have it. InvalidArgument: a value out of its range, or a decorator
// that makes no sense for the codec (says why).
[[nodiscard]] absl::StatusOr<std::unique_ptr<Codec>> MakeDecorated(const CodecEntry& entry,
                                                                   const CodecSpec& spec,
                                                                   const Kernels& kernels);

}  // namespace slimps

#endif  // SLIMPS_COMPRESS_CODEC_DECORATORS_H_
