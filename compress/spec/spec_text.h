// SPDX-License-Identifier: Apache-2.0
// The text by which codecs and policies are given: NAME or NAME:option=value,option=value. A value
// may hold any character except a comma. Thread-safe: pure functions.
//
//   auto spec = ParseSpecText("policy", "gravac:window=500,codec=topk:value=fp16");
//   spec->options.at("codec");                                       // "topk:value=fp16"
#ifndef SLIMPS_COMPRESS_SPEC_SPEC_TEXT_H_
#define SLIMPS_COMPRESS_SPEC_SPEC_TEXT_H_

#include <map>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace slimps {

struct SpecText {
  std::string name;
  std::map<std::string, std::string> options;  // as written
};

// Parses the text. `what` ("codec", "policy") names it in errors. Names are not looked up.
// InvalidArgument: the text has another form, or an option is given twice.
[[nodiscard]] absl::StatusOr<SpecText> ParseSpecText(std::string_view what, std::string_view text);

// Returns the text that ParseSpecText reads back.
std::string ToSpecText(const std::string& name, const std::map<std::string, std::string>& options);

}  // namespace slimps

#endif  // SLIMPS_COMPRESS_SPEC_SPEC_TEXT_H_
