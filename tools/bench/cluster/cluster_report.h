// SPDX-License-Identifier: Apache-2.0
// Computes one worker's figures from its measured iterations, and writes them as JSON. Pure.
//
//   report.figures = FiguresOf(timeline, loop->accelerator());
//   std::cout << ClusterReportJson(report);
#ifndef SLIMPS_TOOLS_BENCH_CLUSTER_CLUSTER_REPORT_H_
#define SLIMPS_TOOLS_BENCH_CLUSTER_CLUSTER_REPORT_H_

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "proto/base/clock.h"
#include "proto/base/trace/trace.h"
#include "tools/bench/cluster/accelerator.h"
#include "tools/bench/cluster/intervals.h"
#include "tools/bench/cluster/link_meter.h"
#include "tools/bench/models/models.h"
#include "worker/kvstore.h"

namespace slimps {

// Means per iteration. An iteration lasts from the end of one backward pass to the end of the next.
struct ClusterFigures {
  std::vector<double> iteration_ms;
  double compute_ms = 0;  // the accelerator computed
  double encode_ms = 0;   // sum over all threads; includes simulated encoding
  // Something was encoded while the accelerator did not compute and the link carried nothing.
  double encode_exposed_ms = 0;
  // The accelerator computed while the link carried something or something was encoded.
  double overlap_ms = 0;
  double exposed_comm_ms = 0;  // the link carried something, the accelerator did not compute
  double worker_cpu_ms = 0;    // CPU time of all the worker's threads
  double wire_bytes_out = 0, wire_bytes_in = 0;  // on the node's interface
  double payload_bytes_out = 0, payload_bytes_in = 0;
  // At the end: resident memory of other processes that this process reads.
  uint64_t borrowed_rss_bytes = 0;
  // The part of the payloads, in and out, that went through memory shared with the node's server.
  double shared_bytes = 0;
  double compressed_bytes = 0, pull_compressed_bytes = 0;  // fp32 bytes of compressed tensors
};

// What happened, in times of this process's clock.
struct ClusterTimeline {
  std::vector<SteadyTime> iteration_ends;  // one more than iterations
  IntervalSet link_busy;
  std::vector<TraceEvent> events;
};

// Returns the figures that are times; the others stay 0. `accelerator` did all compute of
// `timeline`.
ClusterFigures FiguresOf(const ClusterTimeline& timeline, const Accelerator& accelerator);

// Returns the fp32 bytes of the tensors that are compressed at a threshold. nullopt: none is.
double CompressedBytes(const ModelShape& model, std::optional<uint64_t> threshold_bytes);

// Returns the fp32 bytes of the tensors for which a policy has chosen another codec than "none".
double CompressedBytes(const ModelShape& model, std::span<const KeyCodec> chosen);

struct ClusterReport {
  std::string model;
  uint64_t gradient_bytes = 0, tensors = 0;
  ClusterFigures figures;
  // The thresholds in force at the end; nullopt: nothing is compressed.
  std::optional<uint64_t> threshold_bytes, pull_threshold_bytes;
  uint64_t weights_hash = 0;
  uint64_t max_rss_bytes = 0;
};

std::string ClusterReportJson(const ClusterReport& report);

}  // namespace slimps

#endif  // SLIMPS_TOOLS_BENCH_CLUSTER_CLUSTER_REPORT_H_
