// Which codecs there are and which options each takes. A new codec is one entry in registry.cc.
#ifndef SLIMPS_COMPRESS_CODEC_REGISTRY_H_
#define SLIMPS_COMPRESS_CODEC_REGISTRY_H_

#include "absl/status/status.h"
#include "compress/codec/codec.h"

namespace slimps {

// InvalidArgument: unknown name or option, with the nearest valid one.
[[nodiscard]] absl::Status CheckCodecNames(const CodecSpec& spec);

}  // namespace slimps

#endif  // SLIMPS_COMPRESS_CODEC_REGISTRY_H_
