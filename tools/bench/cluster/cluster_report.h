// What one worker's measured iterations were, as JSON.
#ifndef SLIMPS_TOOLS_BENCH_CLUSTER_CLUSTER_REPORT_H_
#define SLIMPS_TOOLS_BENCH_CLUSTER_CLUSTER_REPORT_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "proto/base/clock.h"
#include "proto/base/trace.h"
#include "tools/bench/cluster/accelerator.h"
#include "tools/bench/cluster/intervals.h"
#include "tools/bench/cluster/link_meter.h"
#include "tools/bench/models.h"
#include "worker/kvstore.h"

namespace slimps {

// From the end of one backward pass to that of another; everything by iteration.
struct ClusterFigures {
  std::vector<double> iteration_ms;
  double compute_ms = 0;  // that the accelerator computed
  double encode_ms = 0;   // of all threads; simulated ones too
  double encode_exposed_ms =
      0;  // while neither the accelerator computed nor the link carried anything
  double overlap_ms =
      0;  // both: the accelerator computed; the link carried something or something was encoded
  double exposed_comm_ms = 0;  // the link carried something, the accelerator did not compute
  double worker_cpu_ms = 0;    // CPU time of all the worker's threads
  double wire_bytes_out = 0, wire_bytes_in = 0;  // of the node's interface
  double payload_bytes_out = 0, payload_bytes_in = 0;
  // In the end: resident, but other processes' memory, which this one reads.
  uint64_t borrowed_rss_bytes = 0;
  double shared_bytes = 0;  // of both, what passed through memory shared with the node's server
  double compressed_bytes = 0, pull_compressed_bytes = 0;  // fp32, of the tensors that are
};

// What happened, on this process's clock.
struct ClusterTimeline {
  std::vector<SteadyTime> iteration_ends;  // one more than iterations
  IntervalSet link_busy;
  std::vector<TraceEvent> events;
};

// The times among them. `accelerator` computed all of it.
ClusterFigures FiguresOf(const ClusterTimeline& timeline, const Accelerator& accelerator);

// fp32 bytes of the tensors that are compressed at a threshold; nullopt: none is.
double CompressedBytes(const ModelShape& model, std::optional<uint64_t> threshold_bytes);

struct ClusterReport {
  std::string model;
  uint64_t gradient_bytes = 0, tensors = 0;
  ClusterFigures figures;
  std::optional<uint64_t> threshold_bytes,
      pull_threshold_bytes;  // in force at the end; nullopt: none
  uint64_t weights_hash = 0;
  uint64_t max_rss_bytes = 0;
};

std::string ClusterReportJson(const ClusterReport& report);

}  // namespace slimps

#endif  // SLIMPS_TOOLS_BENCH_CLUSTER_CLUSTER_REPORT_H_
