// SPDX-License-Identifier: Apache-2.0
// CodecSpec to text and back.
#include "absl/strings/str_cat.h"
#include "compress/codec/catalogue/registry.h"
#include "compress/codec/codec.h"
#include "proto/base/status_macros.h"

namespace slimps {
namespace {

absl::Status BadSpec(std::string_view text, const std::string& why) {
  return absl::InvalidArgumentError(
      absl::StrCat("codec '", std::string(text.substr(0, 200)), "': ", why));
}

absl::Status ParseOption(std::string_view text, std::string_view option, CodecSpec& spec) {
  const size_t equals = option.find('=');
  if (equals == std::string_view::npos || equals == 0 || equals + 1 == option.size()) {
    return BadSpec(text, absl::StrCat("expected option=value, got '", std::string(option), "'"));
  }
  const std::string name(option.substr(0, equals));
  if (!spec.options.emplace(name, std::string(option.substr(equals + 1))).second) {
    return BadSpec(text, absl::StrCat("option '", name, "' is given twice"));
  }
  return absl::OkStatus();
}

}  // namespace

std::string CodecSpec::ToString() const {
  std::string text = name;
  char separator = ':';
  for (const auto& [option, value] : options) {
    absl::StrAppend(&text, std::string(1, separator), option, "=", value);
    separator = ',';
  }
  return text;
}

absl::StatusOr<CodecSpec> ParseCodecSpec(std::string_view text) {
  CodecSpec spec;
  const size_t colon = text.find(':');
  spec.name = std::string(text.substr(0, colon));
  if (colon != std::string_view::npos) {
    std::string_view rest = text.substr(colon + 1);
    while (true) {
      const size_t comma = rest.find(',');
      SLIMPS_RETURN_IF_ERROR(ParseOption(text, rest.substr(0, comma), spec));
      if (comma == std::string_view::npos) break;
      rest.remove_prefix(comma + 1);
    }
  }
  SLIMPS_RETURN_IF_ERROR(CheckCodecNames(spec));
  return spec;
}

}  // namespace slimps
