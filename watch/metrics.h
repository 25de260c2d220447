// SPDX-License-Identifier: Apache-2.0
// The metrics of a job, each with its name and labels as Prometheus' conventions want them. A node
// reports values by number (NodeReport.samples). Who exports them adds the labels "role" and "rank"
// of that node.
//
//   AddSample(Metric::kPayloadBytes, {"push", "1bit"}, 4096, &report);
//   InfoOf(Metric::kPayloadBytes).name          // "slimps_payload_bytes_total"
#ifndef SLIMPS_WATCH_METRICS_H_
#define SLIMPS_WATCH_METRICS_H_

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "watch/node_report.pb.h"

namespace slimps {

// The numbers are on the wire: add at the end.
enum class Metric : uint32_t {
  // Workers report these.
  kRound,              // the newest round that this worker has pushed a gradient of
  kPushes,             // pushes of whole tensors, those of former processes of this rank too
  kRawBytes,           // {direction}: what tensors would take in fp32
  kPayloadBytes,       // {direction, codec}: what travelled for them; "none", "rows", "phases" too
  kSharedMemoryBytes,  // of these, through shared memory
  kStageSeconds,       // {stage}: of all threads; copy, encode, send, wait, decode; server: step
  kCompressedNorm,     // sum over compressed pushes of |gradient + residual|^2
  kSentNorm,           // the same of |what was sent|^2
  kLostNorm,           // the same of |what was left out|^2
  kTravelSeconds,      // in which items travelled
  kOverlapSeconds,     // the part of it in which the program was in no call
  kQueueDepth,         // {queue}
  kRepeatedItems,      // sent again, or received again
  // Servers report these.
  kRoundsOver,       // partitions' rounds that were completed
  kReceivedBytes,    // {format}: payloads of pushes
  kSentBytes,        // {format}: payloads of answers
  kWaitedForWorker,  // {worker}: seconds that open rounds waited for this worker alone
  kSnapshotAge,      // seconds since the newest snapshot was whole
  // The scheduler adds these, by role and rank of the node that is meant.
  kNodeUp,        // 1: in the job and heard in time
  kHeartbeatAge,  // seconds
  kRestarts,
  kStalls,          // waits and silent nodes that were warned of
  kThresholdBytes,  // {direction}: what is decided
  kJobAge,          // since the scheduler began
};

// A node's report names those that have waited longest.
inline constexpr int kMaxOpenRounds = 16;

enum class MetricKind { kCounter, kGauge };

struct MetricInfo {
  std::string_view name;
  std::string_view help;
  MetricKind kind;
  std::vector<std::string_view> labels;  // names
};

// Returns nullptr for a number that no metric has. Thread-safe.
const MetricInfo* FindMetric(uint32_t number);

// REQUIRES: `metric` is one of the enumerators.
const MetricInfo& InfoOf(Metric metric);

// REQUIRES: one value for each label name of the metric.
void AddSample(Metric metric, const std::vector<std::string>& labels, double value,
               watch::NodeReport* report);

// Returns the sum of the samples whose labels begin with `labels`.
double SumOf(const watch::NodeReport& report, Metric metric,
             const std::vector<std::string>& labels = {});

}  // namespace slimps

#endif  // SLIMPS_WATCH_METRICS_H_
