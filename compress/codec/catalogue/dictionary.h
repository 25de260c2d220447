// SPDX-License-Identifier: Apache-2.0
// Turns compression options as users of MXNet and BytePS write them into a CodecSpec. Thread-safe:
// a pure function.
//
//   CodecSpecFromDictionary({{"type", "2bit"}, {"threshold", "0.5"}});   // 2bit:threshold=0.5
//   CodecSpecFromDictionary({{"byteps_compressor_type", "topk"}, {"byteps_compressor_k", "0.01"},
//                            {"byteps_ef_type", "vanilla"}});     // topk:error_feedback=on,k=0.01
//
// MXNet (a dictionary with `type`): 1bit is 1bit:scaling=none, 2bit is 2bit; `threshold` is 0.5
// unless given. MXNet compresses every key, so there is no threshold table.
//
// BytePS: a dictionary with `compressor_type`, or with `compressor` and the short names that its
// trainer takes. Any key may begin with byteps_.
//
//   compressor_type (compressor)         onebit: 1bit; topk, randomk, dithering: the same
//   compressor_onebit_scaling (scaling)  true: scaling=l1 (one mean per 4096 elements; in BytePS
//                                        one per tensor)
//                                        false (default): scaling=none, +1 where x > 0, else -1
//                                        (BytePS sends +1 for 0 too)
//   compressor_k (k)                     k; topk, randomk and dithering need it. Below 1 it is a
//                                        ratio, except for dithering
//   ef_type (ef)                         vanilla: error_feedback=on; not given: off, and randomk
//                                        has scaled=on
//   momentum_type (momentum)             nesterov: momentum=nesterov
//   momentum_mu                          mu; goes with momentum_type, which needs it
//   seed                                 seed, over 0 (randomk, dithering)
//   dithering_partition (partition)      0 or linear, 1 or natural
//   dithering_normalize (normalize)      0 or max, 1 or l2
//
// Sources: the two projects' documentation and the options that their code reads.
#ifndef SLIMPS_COMPRESS_CODEC_CATALOGUE_DICTIONARY_H_
#define SLIMPS_COMPRESS_CODEC_CATALOGUE_DICTIONARY_H_

#include <map>
#include <string>

#include "absl/status/statusor.h"
#include "compress/codec/codec.h"

namespace slimps {

struct DictionaryCodec {
  CodecSpec spec;
  bool every_key = false;  // every key is compressed; no threshold table decides
};

// Returns the spec that `dictionary` means. MakeCodec accepts it.
// InvalidArgument: an unknown key or value (the message gives the nearest valid one), a missing
// key, or a value out of its range.
[[nodiscard]] absl::StatusOr<DictionaryCodec> CodecSpecFromDictionary(
    const std::map<std::string, std::string>& dictionary);

}  // namespace slimps

#endif  // SLIMPS_COMPRESS_CODEC_CATALOGUE_DICTIONARY_H_
