// SPDX-License-Identifier: Apache-2.0
// Makes codecs for tests from the text that a user writes.
#ifndef SLIMPS_TESTS_COMPRESS_CODEC_MAKE_CODEC_H_
#define SLIMPS_TESTS_COMPRESS_CODEC_MAKE_CODEC_H_

#include <memory>
#include <string_view>

#include "compress/codec/codec.h"
#include "compress/kernels/kernels.h"

namespace slimps {

inline std::unique_ptr<Codec> MakeCodecOrDie(std::string_view text,
                                             const Kernels& kernels = BestKernels()) {
  return MakeCodec(ParseCodecSpec(text).value(), kernels).value();  // dies with the status
}

// `kernels` is the name of a kernel set, or "" for the best.
inline std::unique_ptr<Codec> MakeCodecOrDie(std::string_view text, std::string_view kernels) {
  return MakeCodecOrDie(text, kernels.empty() ? BestKernels() : *FindKernels(kernels));
}

}  // namespace slimps

#endif  // SLIMPS_TESTS_COMPRESS_CODEC_MAKE_CODEC_H_
