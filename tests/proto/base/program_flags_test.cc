// SPDX-License-Identifier: Apache-2.0
#include "proto/base/program_flags.h"

#include <gflags/gflags.h>
#include <glog/logging.h>
#include <pthread.h>

#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "gtest/gtest.h"

DEFINE_int32(num_workers, 1, "for SettleJobSize");
DEFINE_int32(num_servers, 1, "for SettleJobSize");
DEFINE_int32(count, 4, "a number");
DEFINE_string(text, "", "a text");

namespace slimps {
namespace {

using ::testing::ExitedWithCode;

// Parses the arguments in this process and ends it with `status`. Call it in a death test's child.
void ParseAndExit(std::vector<std::string> arguments, int status) {
  arguments.insert(arguments.begin(), "program");
  std::vector<char*> argv;
  for (std::string& argument : arguments) argv.push_back(argument.data());
  argv.push_back(nullptr);
  ParseProgramFlags("usage", static_cast<int>(arguments.size()), argv.data());
  std::exit(status);
}

class ProgramFlagsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    for (const char* name : {"DMLC_ROLE", "DMLC_NUM_WORKER", "DMLC_NUM_SERVER", "COUNT"}) {
      unsetenv(name);
    }
  }
  static void Set(const char* name, const char* value) { setenv(name, value, /*overwrite=*/1); }

 private:
  gflags::FlagSaver saver_;
};
using ProgramFlagsDeathTest = ProgramFlagsTest;

TEST_F(ProgramFlagsDeathTest, WrongUsageEndsTheProcessWithOneStatus) {
  EXPECT_EXIT(DieOfUsage("why"), ExitedWithCode(kExitUsage), "^[^\n]+: why\n$");
  EXPECT_EXIT(ParseAndExit({"--no_such_flag"}, 0), ExitedWithCode(kExitUsage), "no_such_flag");
  EXPECT_EXIT(ParseAndExit({"--count=four"}, 0), ExitedWithCode(kExitUsage), "four");
  EXPECT_EXIT(ParseAndExit({"--count=5", "extra"}, 0), ExitedWithCode(kExitUsage),
              "unexpected argument \"extra\"");
}

TEST_F(ProgramFlagsDeathTest, AfterParsingTheProgramsStatusIsItsOwn) {
  EXPECT_EXIT(ParseAndExit({"--count=5", "--text", "t"}, 0), ExitedWithCode(0), "");
  EXPECT_EXIT(ParseAndExit({}, 1), ExitedWithCode(1), "");
  EXPECT_EXIT(ParseAndExit({}, 7), ExitedWithCode(7), "");
}

TEST_F(ProgramFlagsDeathTest, FlagsAreTakenAndLogsGoToStderr) {
  const auto parse = [] {
    std::string program = "program", count = "--count=5";
    char* argv[] = {program.data(), count.data(), nullptr};
    ParseProgramFlags("usage", 2, argv);
    LOG(WARNING) << "seen";
    std::exit(FLAGS_count == 5 ? 0 : 3);
  };
  EXPECT_EXIT(parse(), ExitedWithCode(0), "seen");
}

TEST_F(ProgramFlagsTest, TheRoleThatTheLauncherMeant) {
  CheckRole("worker");
  Set("DMLC_ROLE", "worker");
  CheckRole("worker");
  EXPECT_EXIT(CheckRole("server"), ExitedWithCode(kExitUsage), "DMLC_ROLE=worker: expected server");
}

TEST_F(ProgramFlagsTest, TheEnvironmentCountsWhereTheFlagWasNotGiven) {
  TakeFromEnvironment("count", "COUNT");
  EXPECT_EQ(FLAGS_count, 4);
  Set("COUNT", "9");
  TakeFromEnvironment("count", "COUNT");
  EXPECT_EQ(FLAGS_count, 9);
  gflags::SetCommandLineOption("count", "5");
  Set("COUNT", "6");
  TakeFromEnvironment("count", "COUNT");
  EXPECT_EQ(FLAGS_count, 5);
  Set("COUNT", "any text");
  TakeFromEnvironment("text", "COUNT");
  EXPECT_EQ(FLAGS_text, "any text");
}

TEST_F(ProgramFlagsDeathTest, AnEnvironmentThatIsNoNumberIsNamed) {
  for (const char* value : {"two", "", "1x", "99999999999"}) {
    Set("COUNT", value);
    EXPECT_EXIT(TakeFromEnvironment("count", "COUNT"), ExitedWithCode(kExitUsage),
                std::string("COUNT=") + value + ": expected a number");
  }
}

TEST_F(ProgramFlagsDeathTest, RangesIncludeTheirEnds) {
  CheckRange("count", 1, 1, 3);
  CheckRange("count", 3, 1, 3);
  EXPECT_EXIT(CheckRange("count", 0, 1, 3), ExitedWithCode(kExitUsage),
              "--count=0: expected 1 to 3");
  EXPECT_EXIT(CheckRange("count", 4, 1, 3), ExitedWithCode(kExitUsage),
              "--count=4: expected 1 to 3");
}

TEST_F(ProgramFlagsDeathTest, TheJobsSizeComesFromFlagsOrEnvironment) {
  Set("DMLC_NUM_WORKER", "3");
  Set("DMLC_NUM_SERVER", "2");
  SettleJobSize(FLAGS_num_workers, FLAGS_num_servers);
  EXPECT_EQ(FLAGS_num_workers, 3);
  EXPECT_EQ(FLAGS_num_servers, 2);
  FLAGS_num_workers = 4096;
  SettleJobSize(FLAGS_num_workers, FLAGS_num_servers);
  FLAGS_num_workers = 4097;
  EXPECT_EXIT(SettleJobSize(FLAGS_num_workers, FLAGS_num_servers), ExitedWithCode(kExitUsage),
              "--num_workers=4097: expected 1 to 4096");
  FLAGS_num_workers = 1;
  FLAGS_num_servers = 0;
  EXPECT_EXIT(SettleJobSize(FLAGS_num_workers, FLAGS_num_servers), ExitedWithCode(kExitUsage),
              "--num_servers=0: expected 1 to 4096");
}

TEST_F(ProgramFlagsTest, StopSignalsAreBlockedAndNoOthers) {
  sigset_t before;
  pthread_sigmask(SIG_SETMASK, nullptr, &before);
  const sigset_t signals = BlockStopSignals();
  sigset_t blocked;
  pthread_sigmask(SIG_SETMASK, nullptr, &blocked);
  for (const int number : {SIGINT, SIGTERM}) {
    EXPECT_EQ(sigismember(&blocked, number), 1);
    EXPECT_EQ(sigismember(&signals, number), 1);
  }
  EXPECT_EQ(sigismember(&blocked, SIGHUP), sigismember(&before, SIGHUP));
  EXPECT_EQ(sigismember(&signals, SIGHUP), 0);
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

TEST_F(ProgramFlagsTest, WhatMainReturnsSaysWhyOnStderr) {
  ::testing::internal::CaptureStderr();
  EXPECT_EQ(ExitStatus(absl::OkStatus()), 0);
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "");
  ::testing::internal::CaptureStderr();
  EXPECT_EQ(ExitStatus(absl::UnavailableError("server 1 is lost")), kExitFailed);
  EXPECT_TRUE(::testing::internal::GetCapturedStderr().ends_with(": server 1 is lost\n"));
}

TEST_F(ProgramFlagsTest, TheFirstReportOfAnEndCounts) {
  const std::string path = ::testing::TempDir() + "/report";
  setenv("SLIMPS_REPORT_FILE", path.c_str(), 1);
  ReportEnd(absl::AbortedError("no \"b\"\n of key s:w\xff"), {{"blames", "worker1"}});
  EXPECT_EQ(ExitStatus(absl::UnavailableError("what follows")), kExitFailed);
  unsetenv("SLIMPS_REPORT_FILE");
  std::stringstream text;
  text << std::ifstream(path).rdbuf();
  EXPECT_EQ(text.str(),
            "{\"blames\":\"worker1\",\"code\":\"ABORTED\","
            "\"error\":\"no \\\"b\\\"\\n of key w\xEF\xBF\xBD\"}");
}

}  // namespace
}  // namespace slimps
