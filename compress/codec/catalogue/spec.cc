// SPDX-License-Identifier: Apache-2.0
// CodecSpec to text and back.
#include <utility>

#include "compress/codec/catalogue/registry.h"
#include "compress/codec/codec.h"
#include "compress/spec/spec_text.h"
#include "proto/base/status_macros.h"

namespace slimps {

std::string CodecSpec::ToString() const { return ToSpecText(name, options); }

absl::StatusOr<CodecSpec> ParseCodecSpec(std::string_view text) {
  SLIMPS_ASSIGN_OR_RETURN(SpecText parsed, ParseSpecText("codec", text));
  CodecSpec spec{.name = std::move(parsed.name), .options = std::move(parsed.options)};
  SLIMPS_RETURN_IF_ERROR(CheckCodecNames(spec));
  return spec;
}

}  // namespace slimps
