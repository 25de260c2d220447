// SPDX-License-Identifier: Apache-2.0
#include "tools/bench/transport/command.h"

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "proto/base/status_macros.h"

namespace slimps {

absl::StatusOr<std::string> Command::Text(std::string_view name) const {
  const auto found = values.find(std::string(name));
  if (found == values.end()) {
    return absl::InvalidArgumentError(absl::StrCat(verb, ": ", std::string(name), " is missing"));
  }
  return found->second;
}

absl::StatusOr<uint64_t> Command::Count(std::string_view name, uint64_t low, uint64_t high) const {
  SLIMPS_ASSIGN_OR_RETURN(const std::string text, Text(name));
  uint64_t value = 0;
  if (!absl::SimpleAtoi(text, &value) || value < low || value > high) {
    return absl::InvalidArgumentError(absl::StrCat(verb, ": ", std::string(name), ": expected ",
                                                   low, " to ", high, ", got \"", text, "\""));
  }
  return value;
}

absl::StatusOr<Command> ParseCommand(std::string_view line) {
  const std::vector<std::string> words =
      absl::StrSplit(std::string(line), absl::ByAnyChar(" \r\t"), absl::SkipEmpty());
  if (words.empty()) return absl::InvalidArgumentError("command: expected a verb, got nothing");
  Command command{.verb = words[0]};
  for (size_t i = 1; i < words.size(); ++i) {
    const size_t equals = words[i].find('=');
    if (equals == 0 || equals == std::string::npos) {
      return absl::InvalidArgumentError(
          absl::StrCat(command.verb, ": expected name=value, got \"", words[i], "\""));
    }
    const std::string name = words[i].substr(0, equals);
    if (!command.values.emplace(name, words[i].substr(equals + 1)).second) {
      return absl::InvalidArgumentError(absl::StrCat(command.verb, ": ", name, " is given twice"));
    }
  }
  return command;
}

absl::Status ServeCommands(
    std::istream& in, std::ostream& out,
    const std::function<absl::StatusOr<std::string>(const Command&)>& answer) {
  for (std::string line; std::getline(in, line);) {
    SLIMPS_ASSIGN_OR_RETURN(const Command command, ParseCommand(line));
    if (command.verb == "quit") break;
    SLIMPS_ASSIGN_OR_RETURN(const std::string json, answer(command));
    out << json << std::endl;
  }
  return absl::OkStatus();
}

std::string TimesJson(double seconds, const std::vector<double>& samples_us,
                      std::optional<double> push_seconds) {
  const auto tenths = [](std::string* text, double us) { absl::StrAppendFormat(text, "%.1f", us); };
  const std::string pushing =
      push_seconds.has_value() ? absl::StrFormat(R"(, "push_seconds": %.9f)", *push_seconds) : "";
  return absl::StrFormat(R"({"seconds": %.9f%s, "samples_us": [%s]})", seconds, pushing,
                         absl::StrJoin(samples_us, ", ", tenths));
}

}  // namespace slimps
