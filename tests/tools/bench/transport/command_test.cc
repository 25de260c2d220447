// SPDX-License-Identifier: Apache-2.0
#include "tools/bench/transport/command.h"

#include <gtest/gtest.h>

#include <sstream>

namespace slimps {
namespace {

TEST(Command, HasAVerbAndNamedValues) {
  const absl::StatusOr<Command> command = ParseCommand("  two_way\tbytes=4096  name=a=b \r");
  ASSERT_TRUE(command.ok()) << command.status();
  EXPECT_EQ(command->verb, "two_way");
  EXPECT_EQ(*command->Count("bytes", 1, 4096), 4096u);
  EXPECT_EQ(*command->Text("name"), "a=b");
}

TEST(Command, WithoutVerbOrWithABrokenWordIsRefused) {
  for (const char* line : {"", " \t\r", "ping bytes", "ping =4", "ping bytes=1 bytes=2"}) {
    EXPECT_EQ(ParseCommand(line).status().code(), absl::StatusCode::kInvalidArgument) << line;
  }
  EXPECT_EQ(ParseCommand("ping bytes").status().message(),
            "ping: expected name=value, got \"bytes\"");
  EXPECT_EQ(ParseCommand("ping a=1 a=2").status().message(), "ping: a is given twice");
}

TEST(Command, CountsOutsideTheirLimitsAreRefusedWithTheirName) {
  const Command command = *ParseCommand("ping bytes=10 bad=1x minus=-1 huge=99999999999999999999");
  EXPECT_TRUE(command.Count("bytes", 10, 10).ok());
  EXPECT_EQ(command.Count("bytes", 11, 20).status().message(),
            "ping: bytes: expected 11 to 20, got \"10\"");
  EXPECT_FALSE(command.Count("bytes", 1, 9).ok());
  for (const char* name : {"bad", "minus", "huge"}) {
    EXPECT_FALSE(command.Count(name, 0, UINT64_MAX).ok()) << name;
  }
  EXPECT_EQ(command.Count("count", 0, 1).status().message(), "ping: count is missing");
}

TEST(ServeCommands, AnswersEachLineUntilQuit) {
  std::istringstream in("a\nb\nquit\nc\n");
  std::ostringstream out;
  const absl::Status status =
      ServeCommands(in, out, [](const Command& command) { return command.verb + "!"; });
  EXPECT_TRUE(status.ok()) << status;
  EXPECT_EQ(out.str(), "a!\nb!\n");
}

TEST(ServeCommands, EndsWithTheFirstErrorAndAtTheEndOfItsInput) {
  const auto refuse = [](const Command&) -> absl::StatusOr<std::string> {
    return absl::DataLossError("no");
  };
  std::istringstream in("a\nb\n"), broken("a b\n"), empty("");
  std::ostringstream out;
  EXPECT_EQ(ServeCommands(in, out, refuse).message(), "no");
  EXPECT_FALSE(ServeCommands(broken, out, refuse).ok());
  EXPECT_TRUE(ServeCommands(empty, out, refuse).ok());
  EXPECT_EQ(out.str(), "");
}

TEST(TimesJson, IsOneLineOfJson) {
  EXPECT_EQ(TimesJson(1.5, {}), R"({"seconds": 1.500000000, "samples_us": []})");
  EXPECT_EQ(TimesJson(0, {12.34, 5}), R"({"seconds": 0.000000000, "samples_us": [12.3, 5.0]})");
  EXPECT_EQ(TimesJson(2, {}, 0.5),
            R"({"seconds": 2.000000000, "push_seconds": 0.500000000, "samples_us": []})");
}

}  // namespace
}  // namespace slimps
