// SPDX-License-Identifier: Apache-2.0
// Command lines of the processes that users and launchers start. Wrong usage ends the process with
// kExitUsage and one line that names the flag, what was expected and what came. Only the
// main thread calls these functions.
//
//   ParseProgramFlags(kUsage, argc, argv);
//   SettleJobSize(FLAGS_num_workers, FLAGS_num_servers);
//   return ExitStatus(Run());
#ifndef SLIMPS_PROTO_BASE_PROGRAM_FLAGS_H_
#define SLIMPS_PROTO_BASE_PROGRAM_FLAGS_H_

#include <signal.h>

#include <cstdint>
#include <map>
#include <string>

#include "absl/status/status.h"

namespace slimps {

inline constexpr int kExitFailed = 1;
inline constexpr int kExitUsage = 2;

// Writes why this process ends to the file that SLIMPS_REPORT_FILE names, for the launcher that set
// it (python/slimps_launch/blame.py): a JSON with `error`, `code` and the `facts`. Only the first
// report counts, because what follows is its consequence. Any thread may call it, one at a time.
void ReportEnd(const absl::Status& why, const std::map<std::string, std::string>& facts = {});

// Prints "PROGRAM: why" on stderr, reports it (ReportEnd), and ends the process with kExitUsage.
[[noreturn]] void DieOfUsage(const std::string& why);

// Returns an argument with the home directory in place of "~", also in "--flag=~/x", where shells
// leave it.
[[nodiscard]] std::string WithHome(std::string argument);

// Prints `usage` and the flags that this program's *_main.cc defines. Ends the process with status
// 0.
[[noreturn]] void PrintHelp(const std::string& usage);

// Prints "PROGRAM VERSION" and ends the process with status 0.
[[noreturn]] void PrintVersion();

// Parses gflags, then sends logs to stderr. A wrong flag or any other argument is wrong usage.
// --help and -h call PrintHelp; --version calls PrintVersion.
void ParseProgramFlags(const char* usage, int argc, char** argv);

// Checks that DMLC_ROLE, if it is set, is `role`. Otherwise the launcher meant another program,
// which is wrong usage.
void CheckRole(const std::string& role);

// Sets the flag from the environment variable, if the command line did not give it.
// REQUIRES: the flag's type is a number or a string.
void TakeFromEnvironment(const char* flag, const char* variable);

// Checks that the flag's value is from `low` to `high`; if not, that is wrong usage.
void CheckRange(const char* flag, int value, int low, int high);

// Settles the flags --num_workers and --num_servers, from 1 to 4096 each. The environment
// (DMLC_NUM_WORKER, DMLC_NUM_SERVER) may set them first, so they are passed by reference.
void SettleJobSize(const int32_t& num_workers, const int32_t& num_servers);

// Blocks SIGINT and SIGTERM in this thread and in those it starts from now on, so that only a
// thread that waits for them takes them. Returns both.
sigset_t BlockStopSignals();

// Returns what main returns: 0, or kExitFailed after printing "PROGRAM: why" on stderr and
// reporting it (ReportEnd).
[[nodiscard]] int ExitStatus(const absl::Status& status);

}  // namespace slimps

#endif  // SLIMPS_PROTO_BASE_PROGRAM_FLAGS_H_
