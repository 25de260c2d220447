// Command lines of the processes that users and launchers start. Wrong usage ends the process with kExitUsage and one
// line that names the flag, what was expected and what came.
#ifndef SLIMPS_PROTO_BASE_PROGRAM_FLAGS_H_
#define SLIMPS_PROTO_BASE_PROGRAM_FLAGS_H_

#include <signal.h>

#include <cstdint>
#include <string>

#include "absl/status/status.h"

namespace slimps {

inline constexpr int kExitFailed = 1;
inline constexpr int kExitUsage = 2;

// "PROGRAM: why" on stderr.
[[noreturn]] void DieOfUsage(const std::string& why);

// Prints `usage` and the flags that this program's *_main.cc defines, and ends the process with status 0.
[[noreturn]] void PrintHelp(const std::string& usage);

// Prints "PROGRAM VERSION" and ends the process with status 0.
[[noreturn]] void PrintVersion();

// Parses gflags; a wrong one, and any other argument, is wrong usage. --help and -h are PrintHelp,
// --version is PrintVersion. From then on logs go to stderr.
void ParseProgramFlags(const char* usage, int argc, char** argv);

// DMLC_ROLE, where it is set, must be `role`: the launcher meant another program otherwise.
void CheckRole(const std::string& role);

// The environment counts where the flag was not given. REQUIRES: the flag's type is a number or a string.
void TakeFromEnvironment(const char* flag, const char* variable);

void CheckRange(const char* flag, int value, int low, int high);

// The flags --num_workers and --num_servers, given by reference since the environment's DMLC_NUM_WORKER and
// DMLC_NUM_SERVER may set them first: 1 to 4096 each.
void SettleJobSize(const int32_t& num_workers, const int32_t& num_servers);

// SIGINT and SIGTERM, blocked in this thread and in those it starts from now on, so that only who waits takes them.
sigset_t BlockStopSignals();

// What main returns: 0, or kExitFailed after "PROGRAM: why" on stderr.
[[nodiscard]] int ExitStatus(const absl::Status& status);

}  // namespace slimps

#endif  // SLIMPS_PROTO_BASE_PROGRAM_FLAGS_H_
