// What the bench's programs are told, one line on stdin each: "VERB name=value ...", answered by one line of JSON on
// stdout.
//
//   absl::StatusOr<Command> command = ParseCommand("two_way bytes=4096 count=100");
//   absl::StatusOr<uint64_t> bytes = command->Count("bytes", 1, kMostBytes);
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

  // InvalidArgument, naming the value: missing, not a whole number, or not from `low` to `high`.
  [[nodiscard]] absl::StatusOr<uint64_t> Count(std::string_view name, uint64_t low,
                                               uint64_t high) const;
  // InvalidArgument: missing.
  [[nodiscard]] absl::StatusOr<std::string> Text(std::string_view name) const;
};

// InvalidArgument: no verb, a word that is no name=value, or a name twice.
[[nodiscard]] absl::StatusOr<Command> ParseCommand(std::string_view line);

// Answers the lines of `in` until "quit" or the end. The first error ends it.
[[nodiscard]] absl::Status ServeCommands(
    std::istream& in, std::ostream& out,
    const std::function<absl::StatusOr<std::string>(const Command&)>& answer);

// {"seconds": S, "samples_us": [...]}, and "push_seconds": P where that was taken.
std::string TimesJson(double seconds, const std::vector<double>& samples_us,
                      std::optional<double> push_seconds = std::nullopt);

}  // namespace slimps

#endif  // SLIMPS_TOOLS_BENCH_TRANSPORT_COMMAND_H_
