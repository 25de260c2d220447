// SPDX-License-Identifier: Apache-2.0
// The --trace flag of a program, from start to end: records, learns the node's rank, and writes
// this node's part.
//
//   ProgramTrace trace(FLAGS_trace, "worker");          // "": does nothing
//   const absl::Status status = Run(&trace);            // calls trace.SetRank(rank) after joining
//   return ExitStatus(trace.Finish(status));            // after the last thread has ended
//
// Thread-compatible.
#ifndef SLIMPS_PROTO_BASE_TRACE_PROGRAM_TRACE_H_
#define SLIMPS_PROTO_BASE_TRACE_PROGRAM_TRACE_H_

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/status.h"

namespace slimps {

// The help text of the flag.
inline constexpr char kTraceFlagHelp[] =
    "record a timeline; this node's part goes to FILE with its role and rank before the extension "
    "(job.json: job.worker0.json), for tools/slimps trace (environment: SLIMPS_TRACE)";

class ProgramTrace final {
 public:
  // Starts to record, unless `path` is empty. A path that cannot be written is wrong usage and ends
  // the process before any work.
  ProgramTrace(const std::string& path, const std::string& role);
  void SetRank(uint32_t rank);

  // Stops recording and writes the part of a node that knows its rank, also if the job failed.
  // Returns `outcome`; if that is OK, returns why the part could not be written.
  [[nodiscard]] absl::Status Finish(const absl::Status& outcome);

 private:
  const std::string path_;
  const std::string role_;
  std::optional<uint32_t> rank_;
};

}  // namespace slimps

#endif  // SLIMPS_PROTO_BASE_TRACE_PROGRAM_TRACE_H_
