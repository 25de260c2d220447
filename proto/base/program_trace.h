// --trace of a program, from its start to its end: records, learns the node's rank, writes this node's part.
//
//   ProgramTrace trace(FLAGS_trace, "worker");          // "": nothing of all this
//   const absl::Status status = Run(&trace);            // calls trace.SetRank(rank) once it has joined
//   return ExitStatus(trace.Finish(status));            // after the last thread has ended
//
// Thread-compatible.
#ifndef SLIMPS_PROTO_BASE_PROGRAM_TRACE_H_
#define SLIMPS_PROTO_BASE_PROGRAM_TRACE_H_

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/status.h"

namespace slimps {

// What the flag says of itself.
inline constexpr char kTraceFlagHelp[] =
    "record a timeline; this node's part goes to FILE with its role and rank before the extension "
    "(job.json: job.worker0.json), for tools/slimps trace (environment: SLIMPS_TRACE)";

class ProgramTrace final {
 public:
  // A path that cannot be written to is wrong usage: it ends the process before any work.
  ProgramTrace(const std::string& path, const std::string& role);
  void SetRank(uint32_t rank);
  // Writes the part of a node that knows its rank, whether the job went well or not. `outcome`; where that is OK, why the
  // part could not be written.
  [[nodiscard]] absl::Status Finish(const absl::Status& outcome);

 private:
  const std::string path_;
  const std::string role_;
  std::optional<uint32_t> rank_;
};

}  // namespace slimps

#endif  // SLIMPS_PROTO_BASE_PROGRAM_TRACE_H_
