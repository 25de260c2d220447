// SPDX-License-Identifier: Apache-2.0
#include "proto/base/program_flags.h"

#include <errno.h>
#include <gflags/gflags.h>
#include <glog/logging.h>
#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "proto/base/file.h"
#include "proto/base/plain_keys.h"

namespace slimps {

std::string WithHome(std::string argument) {
  const size_t value = argument.starts_with("-") ? argument.find('=') + 1 : 0;
  const char* const home = std::getenv("HOME");
  const bool has_tilde =
      argument.compare(value, 2, "~/") == 0 || std::string_view(argument).substr(value) == "~";
  if (home != nullptr && has_tilde) argument.replace(value, 1, home);
  return argument;
}

void ReportEnd(const absl::Status& why, const std::map<std::string, std::string>& facts) {
  static bool reported = false;
  const char* const path = std::getenv("SLIMPS_REPORT_FILE");
  if (path == nullptr || std::exchange(reported, true)) return;
  nlohmann::json report(facts);
  report["error"] = WithPlainKeys(std::string(why.message()));
  report["code"] = absl::StatusCodeToString(why.code());
  const std::string text = report.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  const absl::Status written = WriteFileDurably(path, text);
  if (!written.ok()) LOG(WARNING) << "SLIMPS_REPORT_FILE: " << written.message();
}

void DieOfUsage(const std::string& why) {
  ReportEnd(absl::InvalidArgumentError(why));
  std::cerr << program_invocation_short_name << ": " << why << "\n";
  std::exit(kExitUsage);
}

void PrintHelp(const std::string& usage) {
  std::vector<gflags::CommandLineFlagInfo> all;
  gflags::GetAllFlags(&all);
  std::cout << usage << "\n";
  for (const gflags::CommandLineFlagInfo& info : all) {
    if (!info.filename.ends_with("_main.cc")) continue;  // a flag of glog or gflags
    std::cout << "  --" << info.name;
    if (!info.default_value.empty()) std::cout << " (" << info.default_value << ")";
    std::cout << "  " << info.description << "\n";
  }
  std::cout << "  --minloglevel (0)  log warnings and errors (1) or errors (2) alone\n"
            << std::flush;
  std::exit(0);
}

void PrintVersion() {
  std::cout << program_invocation_short_name << " " << SLIMPS_VERSION << "\n" << std::flush;
  std::exit(0);
}

void ParseProgramFlags(const char* usage, int argc, char** argv) {
  FLAGS_logtostderr = true;
  for (int i = 1; i < argc; ++i) {
    const std::string_view argument = argv[i];
    if (argument == "--help" || argument == "-help" || argument == "-h") PrintHelp(usage);
    if (argument == "--version") PrintVersion();
  }
  static std::vector<std::string> arguments(argv, argv + argc);  // gflags keeps pointers to them
  std::ranges::transform(arguments, arguments.begin(), WithHome);
  std::ranges::transform(arguments, argv, [](std::string& argument) { return argument.data(); });
  gflags::SetUsageMessage(usage);
  // gflags ends the process with status 1 on a wrong flag. That would be kExitFailed, and callers
  // must tell wrong usage from a failed job. So the exit status is replaced.
  static bool parsing = true;
  on_exit(
      [](int status, void*) {
        if (!parsing || status == 0) return;
        std::fflush(stdout);
        std::_Exit(kExitUsage);
      },
      nullptr);
  gflags::ParseCommandLineFlags(&argc, &argv, /*remove_flags=*/true);
  parsing = false;
  if (argc > 1) DieOfUsage(absl::StrCat("unexpected argument \"", argv[1], "\""));
  google::InitGoogleLogging(argv[0]);
}

void CheckRole(const std::string& role) {
  const char* given = std::getenv("DMLC_ROLE");
  if (given == nullptr || given == role) return;
  DieOfUsage(absl::StrCat("DMLC_ROLE=", given, ": expected ", role, " (or start another program)"));
}

void TakeFromEnvironment(const char* flag, const char* variable) {
  const char* value = std::getenv(variable);
  if (value == nullptr || !gflags::GetCommandLineFlagInfoOrDie(flag).is_default) return;
  if (gflags::SetCommandLineOption(flag, WithHome(value).c_str()).empty()) {
    DieOfUsage(absl::StrCat(variable, "=", value, ": expected a number"));
  }
}

void CheckRange(const char* flag, int value, int low, int high) {
  if (value < low || value > high) {
    DieOfUsage(absl::StrCat("--", flag, "=", value, ": expected ", low, " to ", high));
  }
}

void SettleJobSize(const int32_t& num_workers, const int32_t& num_servers) {
  TakeFromEnvironment("num_workers", "DMLC_NUM_WORKER");
  TakeFromEnvironment("num_servers", "DMLC_NUM_SERVER");
  CheckRange("num_workers", num_workers, 1, 4096);
  CheckRange("num_servers", num_servers, 1, 4096);
}

sigset_t BlockStopSignals() {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGINT);
  sigaddset(&signals, SIGTERM);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  return signals;
}

int ExitStatus(const absl::Status& status) {
  if (status.ok()) return 0;
  ReportEnd(status);
  std::cerr << program_invocation_short_name << ": " << WithPlainKeys(std::string(status.message()))
            << "\n";
  return kExitFailed;
}

}  // namespace slimps
