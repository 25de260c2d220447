// none, fp16 and bf16: x in full or half precision, rounded to nearest even. A value that half precision would turn
// into infinity is refused, not clipped: a server must never meet an infinity that the gradient did not have.
#ifndef SLIMPS_COMPRESS_CODEC_RAW_CODECS_H_
#define SLIMPS_COMPRESS_CODEC_RAW_CODECS_H_

#include <memory>

#include "absl/status/statusor.h"
#include "compress/codec/codec.h"

namespace slimps {

absl::StatusOr<std::unique_ptr<Codec>> MakeFp32Codec(const CodecSpec& spec, const Kernels& kernels);
absl::StatusOr<std::unique_ptr<Codec>> MakeFp16Codec(const CodecSpec& spec, const Kernels& kernels);
absl::StatusOr<std::unique_ptr<Codec>> MakeBf16Codec(const CodecSpec& spec, const Kernels& kernels);

}  // namespace slimps

#endif  // SLIMPS_COMPRESS_CODEC_RAW_CODECS_H_
