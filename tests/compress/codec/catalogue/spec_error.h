// SPDX-License-Identifier: Apache-2.0
// Why a codec spec is refused.
#ifndef SLIMPS_TESTS_COMPRESS_CODEC_CATALOGUE_SPEC_ERROR_H_
#define SLIMPS_TESTS_COMPRESS_CODEC_CATALOGUE_SPEC_ERROR_H_

#include <string>

#include "compress/codec/catalogue/registry.h"
#include "gtest/gtest.h"

namespace slimps {

// Returns the message that refuses `text`, by its syntax or by the codec.
inline std::string ErrorOf(const std::string& text) {
  const absl::StatusOr<CodecSpec> spec = ParseCodecSpec(text);
  const absl::Status status = spec.ok() ? MakeCodec(*spec).status() : spec.status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << text;
  return std::string(status.message());
}

}  // namespace slimps

#endif  // SLIMPS_TESTS_COMPRESS_CODEC_CATALOGUE_SPEC_ERROR_H_
