// Which codecs there are and which options each takes. A new codec is one entry in its family's list.
#ifndef SLIMPS_COMPRESS_CODEC_REGISTRY_H_
#define SLIMPS_COMPRESS_CODEC_REGISTRY_H_

#include <memory>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "compress/codec/codec.h"

namespace slimps {

struct CodecEntry {
  std::string_view name;
  std::vector<std::string_view> options;
  absl::StatusOr<std::unique_ptr<Codec>> (*make)(const CodecSpec&, const Kernels&);
};

// By family, each beside its codecs.
std::vector<CodecEntry> RawCodecs();        // none, fp16, bf16
std::vector<CodecEntry> SignCodecs();       // 1bit, 2bit
std::vector<CodecEntry> QuantizerCodecs();  // signsgd, terngrad, qsgd, dithering
std::vector<CodecEntry> SparseCodecs();     // topk, randomk, mstopk, redsync, threshold
std::vector<CodecEntry> BinCodecs();        // adacomp, local_selection, dryden
std::vector<CodecEntry> MomentumCodecs();   // dgc

// All of them, in that order.
std::vector<CodecEntry> AllCodecs();

// InvalidArgument: unknown name or option, with the nearest valid one.
[[nodiscard]] absl::Status CheckCodecNames(const CodecSpec& spec);

}  // namespace slimps

#endif  // SLIMPS_COMPRESS_CODEC_REGISTRY_H_
