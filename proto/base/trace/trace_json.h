// SPDX-License-Identifier: Apache-2.0
// Writes a trace file in Chrome's JSON trace format, as chrome://tracing and ui.perfetto.dev read
// it.
//
//   {"otherData": {"process": "worker 0", "base_unix_ns": "1700000000000000000", "dropped": "0"},
//    "traceEvents": [
//    {"ph": "M", "name": "process_name", ...}, {"ph": "M", "name": "thread_name", "tid": 1, ...},
//    {"ph": "X", "name": "s:w[0]", "cat": "encode", "ts": 12.345, "dur": 1.5, "pid": 7, "tid": 1,
//     "args": {"key": "s:w", "partition": 0, "round": 1, "elements": 262144}}]}
//
// Only events of copying and encoding have "elements". Each event is one line, so
// python/slimps_launch/job_trace.py need not hold a whole file in memory. Times are microseconds
// since base_unix_ns of the job's wall clock. That aligns the files of several processes.
// Thread-safe.
#ifndef SLIMPS_PROTO_BASE_TRACE_TRACE_JSON_H_
#define SLIMPS_PROTO_BASE_TRACE_TRACE_JSON_H_

#include <cstdint>
#include <ostream>
#include <string>
#include <vector>

#include "proto/base/clock.h"
#include "proto/base/trace/trace.h"

namespace slimps {

struct TraceRecording {
  std::string process_name;
  uint32_t pid = 0;
  WallAnchor job_time;
  uint64_t dropped = 0;
  std::vector<TraceEvent> events;         // in order of beginning
  std::vector<std::string> thread_names;  // by the thread's number; "" if it has none
};

void WriteTraceJson(const TraceRecording& recording, std::ostream* out);

}  // namespace slimps

#endif  // SLIMPS_PROTO_BASE_TRACE_TRACE_JSON_H_
