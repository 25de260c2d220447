// SPDX-License-Identifier: Apache-2.0
#include "worker/worker_arguments.h"

#include <gflags/gflags.h>

#include <cstddef>
#include <string>

#include "absl/strings/str_cat.h"
#include "proto/base/program_flags.h"

namespace slimps {
namespace {

// gflags only holds the flags. Its own parser would end the process with status 1 and a message of
// its own wording; wrong usage is status 2 here.
void SetFlag(const std::string& source, const std::string& name, const std::string& value) {
  gflags::CommandLineFlagInfo info;
  if (!gflags::GetCommandLineFlagInfo(name.c_str(), &info)) {
    DieOfUsage(absl::StrCat("unknown flag ", source, "; slimps_worker --help lists all"));
  }
  if (gflags::SetCommandLineOption(name.c_str(), value.c_str()).empty()) {
    DieOfUsage(absl::StrCat(source, "=", value, ": expected a value of type ", info.type));
  }
}

}  // namespace

void ParseWorkerArguments(int argc, char** argv) {
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    const size_t dashes = argument.find_first_not_of('-');
    if (argument == "--help" || argument == "-h") {
      PrintHelp("slimps_worker: one worker of a training job.");
    }
    if (argument == "--version") PrintVersion();
    if (dashes == 0 || dashes > 2 || dashes == std::string::npos) {
      DieOfUsage(absl::StrCat("unexpected argument \"", argument, "\"; flags begin with --"));
    }
    const size_t equals = argument.find('=');
    const std::string source = argument.substr(0, equals);
    const std::string name = source.substr(dashes);
    gflags::CommandLineFlagInfo info;
    if (equals != std::string::npos) {
      SetFlag(source, name, argument.substr(equals + 1));
    } else if (!gflags::GetCommandLineFlagInfo(name.c_str(), &info) || info.type == "bool") {
      SetFlag(source, name, "true");
    } else if (i + 1 < argc) {
      SetFlag(source, name, argv[++i]);
    } else {
      DieOfUsage(absl::StrCat(source, ": expected a value of type ", info.type, ", got none"));
    }
  }
}

}  // namespace slimps
