// SPDX-License-Identifier: Apache-2.0
#include "compress/codec/sparse/sparse_options.h"

#include <charconv>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "proto/base/status_macros.h"

namespace slimps {
namespace {

constexpr double kDefaultRatio = 0.01;
constexpr double kMaxSent = 4294967295.0;  // the format's field has 32 bits
constexpr size_t kLongestShown = 64;       // characters of a value: a peer may send a long one

// Returns NaN if the text is no number.
double ParseDouble(const std::string& text) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size() ? value : std::nan("");
}

absl::Status BadValue(const CodecSpec& spec, const char* option, const char* expected) {
  return absl::InvalidArgumentError(
      absl::StrCat("codec ", spec.name, ", option ", option, ": expected ", expected, ", got '",
                   spec.options.at(option).substr(0, kLongestShown), "'"));
}

}  // namespace

absl::StatusOr<SentCount> SentCountOption(const CodecSpec& spec) {
  const auto ratio = spec.options.find("ratio"), k = spec.options.find("k");
  if (ratio != spec.options.end() && k != spec.options.end()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "codec ", spec.name, ": options ratio and k say the same thing: expected one of them"));
  }
  if (ratio != spec.options.end()) {
    const double value = ParseDouble(ratio->second);
    if (value > 0 && value <= 1) return SentCount{.ratio = value};
    return BadValue(spec, "ratio", "a number over 0 and at most 1");
  }
  if (k == spec.options.end()) return SentCount{.ratio = kDefaultRatio};
  const double value = ParseDouble(k->second);
  if (value > 0 && value < 1) return SentCount{.ratio = value};
  if (value >= 1 && value <= kMaxSent && value == std::floor(value)) {
    return SentCount{.count = static_cast<size_t>(value)};
  }
  return BadValue(spec, "k", "a ratio between 0 and 1 or a whole number");
}

absl::StatusOr<SparseValues> ValueOption(const CodecSpec& spec) {
  static constexpr std::string_view kChoices[] = {"fp32", "fp16"};
  SLIMPS_ASSIGN_OR_RETURN(const size_t choice, ChoiceOption(spec, "value", kChoices, 0));
  return choice == 0 ? SparseValues::kF32 : SparseValues::kF16;
}

}  // namespace slimps
