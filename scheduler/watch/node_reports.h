// SPDX-License-Identifier: Apache-2.0
// Reads what nodes say of themselves. A report is untrusted: what makes no sense is left out, and
// what is left has bounded counts, finite numbers and texts of one printable line. Pure.
#ifndef SLIMPS_SCHEDULER_WATCH_NODE_REPORTS_H_
#define SLIMPS_SCHEDULER_WATCH_NODE_REPORTS_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "proto/base/clock.h"
#include "scheduler/watch/job_view.h"
#include "watch/metrics.h"
#include "watch/node_report.pb.h"

namespace slimps {

struct TakenReport {
  watch::NodeReport report;
  SteadyTime at;  // when it came
};

// The newest report of each node.
using ReportMap = std::map<NodePlace, TakenReport>;

struct ReportLimits {
  uint32_t num_workers = 1;
  uint32_t num_servers = 1;
  int max_samples = 512;
  int max_open_rounds = kMaxOpenRounds;
  int max_named = 8;  // tensors of one round
  int max_tensors = 8192;
  int max_spans = 4096;
  size_t max_text_bytes = 200;
};

// Returns the report that `bytes` hold, or nullopt if they hold none. Leaves out samples of no
// metric, with wrong labels, repeated or not finite, and ranks that the job does not have.
std::optional<watch::NodeReport> ParseNodeReport(std::string_view bytes,
                                                 const ReportLimits& limits);

// Returns the first `max_bytes` bytes of `text` without control characters, cut between two
// characters.
std::string OneLine(std::string_view text, size_t max_bytes);

}  // namespace slimps

#endif  // SLIMPS_SCHEDULER_WATCH_NODE_REPORTS_H_
