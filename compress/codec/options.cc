// SPDX-License-Identifier: Apache-2.0
#include "compress/codec/options.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <vector>

#include "absl/strings/str_cat.h"
#include "proto/base/status_macros.h"

namespace slimps {
namespace {

// Characters of a name or value that are compared and shown: a peer may send a long one.
constexpr size_t kLongestCompared = 64;

absl::Status BadValue(const CodecSpec& spec, const std::string& option, const std::string& expected,
                      const std::string& got) {
  return absl::InvalidArgumentError(absl::StrCat("codec ", spec.name, ", option ", option,
                                                 ": expected ", expected, ", got '",
                                                 got.substr(0, kLongestCompared), "'"));
}

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

size_t EditDistance(std::string_view a, std::string_view b) {
  // One row of the table at a time: row[j] is the distance from the first i characters of `a` to
  // the first j of `b`.
  std::vector<size_t> row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t replaced = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({replaced, row[j] + 1, row[j - 1] + 1});
    }
  }
  return row[b.size()];
}

absl::Status UnknownName(const std::string& what, std::string_view got,
                         std::span<const std::string_view> valid) {
  got = got.substr(0, kLongestCompared);
  std::string message = absl::StrCat("unknown ", what, " '", std::string(got), "'");
  if (valid.empty()) {
    return absl::InvalidArgumentError(absl::StrCat(message, ": it takes none"));
  }
  const auto nearest = std::min_element(valid.begin(), valid.end(), [&](auto a, auto b) {
    return EditDistance(got, a) < EditDistance(got, b);
  });
  absl::StrAppend(&message, ": did you mean '", std::string(*nearest), "'? Valid are");
  for (const std::string_view& name : valid) {
    absl::StrAppend(&message, &name == valid.data() ? " " : ", ", std::string(name));
  }
  return absl::InvalidArgumentError(message);
}

absl::StatusOr<size_t> ChoiceOption(const CodecSpec& spec, const std::string& option,
                                    std::span<const std::string_view> choices, size_t fallback) {
  const auto given = spec.options.find(option);
  if (given == spec.options.end()) return fallback;
  const auto choice = std::find(choices.begin(), choices.end(), std::string_view(given->second));
  if (choice != choices.end()) return static_cast<size_t>(choice - choices.begin());
  return UnknownName(absl::StrCat("value of codec ", spec.name, ", option ", option), given->second,
                     choices);
}

absl::StatusOr<float> FloatOption(const CodecSpec& spec, const std::string& option,
                                  FloatRange range, float fallback) {
  const auto given = spec.options.find(option);
  if (given == spec.options.end()) return fallback;
  const std::string& text = given->second;
  float value = 0;
  if (!ParseWhole(text, &value) || !std::isfinite(value) || !InRange(range, value)) {
    return BadValue(spec, option, Describe(range), text);
  }
  return value;
}

absl::StatusOr<uint64_t> UintOption(const CodecSpec& spec, const std::string& option,
                                    uint64_t smallest, uint64_t largest, uint64_t fallback) {
  const auto given = spec.options.find(option);
  if (given == spec.options.end()) return fallback;
  uint64_t value = 0;
  if (!ParseWhole(given->second, &value) || value < smallest || value > largest) {
    return BadValue(spec, option, absl::StrCat("an integer from ", smallest, " to ", largest),
                    given->second);
  }
  return value;
}

absl::StatusOr<ErrorFeedback> ErrorFeedbackOption(const CodecSpec& spec, ErrorFeedback fallback) {
  static constexpr std::string_view kChoices[] = {"off", "on"};
  SLIMPS_ASSIGN_OR_RETURN(
      const size_t choice,
      ChoiceOption(spec, "error_feedback", kChoices, fallback == ErrorFeedback::kOn ? 1 : 0));
  return choice == 1 ? ErrorFeedback::kOn : ErrorFeedback::kOff;
}

}  // namespace slimps
