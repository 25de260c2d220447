// SPDX-License-Identifier: Apache-2.0
// Lists the codecs and the options that each takes. A new codec is one entry in its family's list.
// Thread-safe: all are pure functions.
//
//   for (const CodecEntry& entry : AllCodecs()) Print(entry.name, entry.options);
#ifndef SLIMPS_COMPRESS_CODEC_CATALOGUE_REGISTRY_H_
#define SLIMPS_COMPRESS_CODEC_CATALOGUE_REGISTRY_H_

#include <memory>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "compress/codec/codec.h"

namespace slimps {

// One codec: its name, the names of its own options (decorators.h adds others) and its factory.
struct CodecEntry {
  std::string_view name;
  std::vector<std::string_view> options;
  absl::StatusOr<std::unique_ptr<Codec>> (*make)(const CodecSpec&, const Kernels&);
  bool has_phases = false;  // Codec::phases() is not null; it takes no decorator then
};

// The codecs by family. Each list lies beside its codecs, in *_codecs.cc.
std::vector<CodecEntry> RawCodecs();        // none, fp16, bf16
std::vector<CodecEntry> SignCodecs();       // 1bit, 2bit
std::vector<CodecEntry> QuantizerCodecs();  // signsgd, terngrad, qsgd, dithering, drive, thc
std::vector<CodecEntry> SparseCodecs();     // topk, randomk, mstopk, redsync, threshold
std::vector<CodecEntry> BinCodecs();        // adacomp, local_selection, dryden
std::vector<CodecEntry> MomentumCodecs();   // dgc
std::vector<CodecEntry> LowRankCodecs();    // powersgd, atomo

// Returns all families' codecs, in the order above.
std::vector<CodecEntry> AllCodecs();

// InvalidArgument: an unknown codec or option (the message gives the nearest valid one).
[[nodiscard]] absl::Status CheckCodecNames(const CodecSpec& spec);

}  // namespace slimps

#endif  // SLIMPS_COMPRESS_CODEC_CATALOGUE_REGISTRY_H_
