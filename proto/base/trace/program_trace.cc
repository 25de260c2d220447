// SPDX-License-Identifier: Apache-2.0
#include "proto/base/trace/program_trace.h"

#include <glog/logging.h>

#include "absl/strings/str_cat.h"
#include "proto/base/program_flags.h"
#include "proto/base/trace/trace.h"

namespace slimps {

ProgramTrace::ProgramTrace(const std::string& path, const std::string& role)
    : path_(path), role_(role) {
  if (path_.empty()) return;
  const absl::Status writable = CheckTracePath(path_);
  if (!writable.ok()) DieOfUsage(absl::StrCat("--trace: ", writable.message()));
  TraceLog::Global().Start(role_);
}

void ProgramTrace::SetRank(uint32_t rank) {
  rank_ = rank;
  TraceLog::Global().SetProcessName(absl::StrCat(role_, " ", rank));
}

absl::Status ProgramTrace::Finish(const absl::Status& outcome) {
  TraceLog& log = TraceLog::Global();
  log.Stop();
  if (path_.empty() || !rank_.has_value()) return outcome;
  if (log.dropped() > 0) LOG(WARNING) << "trace: " << log.dropped() << " events beyond the bound";
  const absl::Status written = log.WriteTo(TracePartPath(path_, role_, *rank_));
  if (!written.ok() && !outcome.ok()) LOG(ERROR) << written.message();
  return outcome.ok() ? written : outcome;
}

}  // namespace slimps
