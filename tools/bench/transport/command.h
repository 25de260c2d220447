// SPDX-License-Identifier: Apache-2.0
// The commands of the bench's programs. A command is one line on stdin, "VERB name=value ...". The
// program answers it with one line of JSON on stdout.
//
//   absl::StatusOr<Command> command = ParseCommand("two_way bytes=4096 count=100");
//   absl::StatusOr<uint64_t> bytes = command->Count("bytes", 1, kMaxBytes);
#ifndef SLIMPS_TOOLS_BENCH_TRANSPORT_COMMAND_H_
#define SLIMPS_TOOLS_BENCH_TRANSPORT_COMMAND_H_

#include <cstdint>
#include <functional>
#include <istream>
#include <map>
#include <optional>
#include <ostream>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace slimps {

// Thread-compatible.
struct Command {
  std::string verb;
  std::map<std::string, std::string> values;

  // Returns a value that is a whole number.
  // InvalidArgument: it is missing, no whole number, or not from `low` to `high`; names the value.
  [[nodiscard]] absl::StatusOr<uint64_t> Count(std::string_view name, uint64_t low,
                                               uint64_t high) const;

  // InvalidArgument: the value is missing.
  [[nodiscard]] absl::StatusOr<std::string> Text(std::string_view name) const;
};

// InvalidArgument: there is no verb, a word is no name=value, or a name is there twice.
[[nodiscard]] absl::StatusOr<Command> ParseCommand(std::string_view line);

// Answers the lines of `in` until "quit" or the end of `in`. Returns the first error, if any, and
// stops there.
[[nodiscard]] absl::Status ServeCommands(
    std::istream& in, std::ostream& out,
    const std::function<absl::StatusOr<std::string>(const Command&)>& answer);

// Returns {"seconds": S, "samples_us": [...]}, with "push_seconds": P if that was measured.
std::string TimesJson(double seconds, const std::vector<double>& samples_us,
                      std::optional<double> push_seconds = std::nullopt);

}  // namespace slimps

#endif  // SLIMPS_TOOLS_BENCH_TRANSPORT_COMMAND_H_
