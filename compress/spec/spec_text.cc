// SPDX-License-Identifier: Apache-2.0
#include "compress/spec/spec_text.h"

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "proto/base/status_macros.h"

namespace slimps {
namespace {

absl::Status BadText(std::string_view what, std::string_view text, const std::string& why) {
  return absl::InvalidArgumentError(
      absl::StrCat(std::string(what), " '", std::string(text.substr(0, 200)), "': ", why));
}

absl::Status ParseOption(std::string_view what, std::string_view text, std::string_view option,
                         SpecText& spec) {
  const size_t equals = option.find('=');
  if (equals == std::string_view::npos || equals == 0 || equals + 1 == option.size()) {
    return BadText(what, text,
                   absl::StrCat("expected option=value, got '", std::string(option), "'"));
  }
  const std::string name(option.substr(0, equals));
  if (!spec.options.emplace(name, std::string(option.substr(equals + 1))).second) {
    return BadText(what, text, absl::StrCat("option '", name, "' is given twice"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<SpecText> ParseSpecText(std::string_view what, std::string_view text) {
  SpecText spec;
  const size_t colon = text.find(':');
  spec.name = std::string(text.substr(0, colon));
  if (colon == std::string_view::npos) return spec;
  std::string_view rest = text.substr(colon + 1);
  while (true) {
    const size_t comma = rest.find(',');
    SLIMPS_RETURN_IF_ERROR(ParseOption(what, text, rest.substr(0, comma), spec));
    if (comma == std::string_view::npos) return spec;
    rest.remove_prefix(comma + 1);
  }
}

std::string ToSpecText(const std::string& name, const std::map<std::string, std::string>& options) {
  std::string text = name;
  char separator = ':';
  for (const auto& [option, value] : options) {
    absl::StrAppend(&text, std::string(1, separator), option, "=", value);
    separator = ',';
  }
  return text;
}

}  // namespace slimps
