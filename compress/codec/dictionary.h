// Compression options as users of MXNet and BytePS write them, as one of our specs.
//
//   CodecSpecFromDictionary({{"type", "2bit"}, {"threshold", "0.5"}});             // 2bit:threshold=0.5
//   CodecSpecFromDictionary({{"byteps_compressor_type", "topk"}, {"byteps_compressor_k", "0.01"},
//                            {"byteps_ef_type", "vanilla"}});                       // topk:error_feedback=on,k=0.01
//
// MXNet (a dictionary with `type`): 1bit is 1bit:scaling=none, 2bit is 2bit; `threshold` is 0.5 unless given. MXNet
// compresses every key, so there is no threshold table.
// BytePS (`compressor_type`, or `compressor` with the short names that its trainer takes; any key may begin with byteps_):
//
//   compressor_type (compressor)         onebit: 1bit; topk, randomk, dithering: the same
//   compressor_onebit_scaling (scaling)  true: scaling=l1 (a mean per 4096 elements, not per tensor); false, which is the
//                                        default: scaling=none, +1 where x > 0, else -1 (BytePS sends +1 for 0 too)
//   compressor_k (k)                     k; needed for topk, randomk, dithering. Below 1 a ratio, but for dithering
//   ef_type (ef)                         vanilla: error_feedback=on; else off, and randomk is scaled=on
//   momentum_type (momentum)             nesterov: momentum=nesterov
//   momentum_mu                          mu; needed with momentum_type
//   seed                                 seed, over 0 (randomk, dithering)
//   dithering_partition (partition)      0 or linear, 1 or natural
//   dithering_normalize (normalize)      0 or max, 1 or l2
//
// Sources: the two projects' documentation and the options that their code reads.
#ifndef SLIMPS_COMPRESS_CODEC_DICTIONARY_H_
#define SLIMPS_COMPRESS_CODEC_DICTIONARY_H_

#include <map>
#include <string>

#include "absl/status/statusor.h"
#include "compress/codec/codec.h"

namespace slimps {

struct DictionaryCodec {
  CodecSpec spec;
  bool every_key = false;  // no threshold table decides which keys are compressed
};

// InvalidArgument: an unknown key or value (says the nearest valid one), one that is missing, or a value out of its
// range. The spec of an OK result makes a codec.
[[nodiscard]] absl::StatusOr<DictionaryCodec> CodecSpecFromDictionary(
    const std::map<std::string, std::string>& dictionary);

}  // namespace slimps

#endif  // SLIMPS_COMPRESS_CODEC_DICTIONARY_H_
