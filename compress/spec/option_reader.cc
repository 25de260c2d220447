// SPDX-License-Identifier: Apache-2.0
#include "compress/spec/option_reader.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <vector>

#include "absl/strings/str_cat.h"
#include "compress/spec/names.h"

namespace slimps {
namespace {

template <typename T>
bool ParseWhole(const std::string& text, T* value) {
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, *value);
  return error == std::errc() && stop == end;
}

bool InRange(FloatRange range, float value) {
  switch (range) {
    case FloatRange::kFinite:
      return true;
    case FloatRange::kPositive:
      return value > 0;
    case FloatRange::kFactor:
      return value >= 0 && value < 1;
  }
  return false;
}

std::string Describe(FloatRange range) {
  switch (range) {
    case FloatRange::kFinite:
      return "a finite number";
    case FloatRange::kPositive:
      return "a finite number over 0";
    case FloatRange::kFactor:
      return "a number from 0 to below 1";
  }
  return "";
}

}  // namespace

const std::string* OptionReader::Find(const std::string& option) const {
  const auto given = options_.find(option);
  return given == options_.end() ? nullptr : &given->second;
}

absl::Status OptionReader::BadValue(const std::string& option, const std::string& expected,
                                    std::string_view got) const {
  return absl::InvalidArgumentError(absl::StrCat(owner_, ", option ", option, ": expected ",
                                                 expected, ", got '",
                                                 std::string(got.substr(0, kLongestShown)), "'"));
}

absl::Status OptionReader::CheckNames(std::span<const std::string_view> valid) const {
  for (const auto& [option, value] : options_) {
    if (std::ranges::find(valid, std::string_view(option)) == valid.end()) {
      return UnknownName(absl::StrCat("option of ", owner_), option, valid);
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<size_t> OptionReader::Choice(const std::string& option,
                                            std::span<const std::string_view> choices,
                                            size_t fallback) const {
  const std::string* const text = Find(option);
  if (text == nullptr) return fallback;
  const auto choice = std::find(choices.begin(), choices.end(), std::string_view(*text));
  if (choice != choices.end()) return static_cast<size_t>(choice - choices.begin());
  return UnknownName(absl::StrCat("value of ", owner_, ", option ", option), *text, choices);
}

absl::StatusOr<float> OptionReader::Float(const std::string& option, FloatRange range,
                                          float fallback) const {
  const std::string* const text = Find(option);
  if (text == nullptr) return fallback;
  float value = 0;
  if (!ParseWhole(*text, &value) || !std::isfinite(value) || !InRange(range, value)) {
    return BadValue(option, Describe(range), *text);
  }
  return value;
}

absl::StatusOr<uint64_t> OptionReader::Uint(const std::string& option, uint64_t smallest,
                                            uint64_t largest, uint64_t fallback) const {
  const std::string* const text = Find(option);
  if (text == nullptr) return fallback;
  uint64_t value = 0;
  if (!ParseWhole(*text, &value) || value < smallest || value > largest) {
    return BadValue(option, absl::StrCat("an integer from ", smallest, " to ", largest), *text);
  }
  return value;
}

std::string OptionReader::Text(const std::string& option, std::string_view fallback) const {
  const std::string* const text = Find(option);
  return text == nullptr ? std::string(fallback) : *text;
}

}  // namespace slimps
