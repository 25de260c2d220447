// SPDX-License-Identifier: Apache-2.0
#include "watch/metrics.h"

#include <glog/logging.h>

#include <algorithm>
#include <map>

namespace slimps {
namespace {

const std::map<Metric, MetricInfo>& Catalogue() {
  static const auto* const catalogue = new std::map<Metric, MetricInfo>{
      {Metric::kRound,
       {"slimps_round",
        "Newest round that this worker has pushed a gradient of.",
        MetricKind::kGauge,
        {}}},
      {Metric::kPushes,
       {"slimps_pushes_total",
        "Pushes of whole tensors that this rank has made.",
        MetricKind::kCounter,
        {}}},
      {Metric::kRawBytes,
       {"slimps_raw_bytes_total",
        "Bytes that the pushed or pulled tensors have in fp32.",
        MetricKind::kCounter,
        {"direction"}}},
      {Metric::kPayloadBytes,
       {"slimps_payload_bytes_total",
        "Bytes of payloads that travelled, by codec.",
        MetricKind::kCounter,
        {"direction", "codec"}}},
      {Metric::kSharedMemoryBytes,
       {"slimps_shared_memory_bytes_total",
        "Payload bytes that went through shared memory.",
        MetricKind::kCounter,
        {}}},
      {Metric::kStageSeconds,
       {"slimps_stage_seconds_total",
        "Seconds of all threads, by stage. wait: in calls, while items travel; step: of servers.",
        MetricKind::kCounter,
        {"stage"}}},
      {Metric::kCompressedNorm,
       {"slimps_compressed_squared_norm_total",
        "Sum over compressed pushes of the squared norm of gradient plus residual.",
        MetricKind::kCounter,
        {}}},
      {Metric::kSentNorm,
       {"slimps_sent_squared_norm_total",
        "Sum over compressed pushes of the squared norm of what they sent.",
        MetricKind::kCounter,
        {}}},
      {Metric::kLostNorm,
       {"slimps_lost_squared_norm_total",
        "Sum over compressed pushes of the squared norm of what they left out.",
        MetricKind::kCounter,
        {}}},
      {Metric::kTravelSeconds,
       {"slimps_travel_seconds_total",
        "Seconds in which pushes or pulls travelled.",
        MetricKind::kCounter,
        {}}},
      {Metric::kOverlapSeconds,
       {"slimps_overlap_seconds_total",
        "Seconds of travelling in which the training program was in no call.",
        MetricKind::kCounter,
        {}}},
      {Metric::kQueueDepth,
       {"slimps_queue_depth", "Entries that wait in a queue.", MetricKind::kGauge, {"queue"}}},
      {Metric::kRepeatedItems,
       {"slimps_repeated_items_total",
        "Pushes and pulls of partitions that were sent again or received again.",
        MetricKind::kCounter,
        {}}},
      {Metric::kRoundsOver,
       {"slimps_partition_rounds_total",
        "Rounds of partitions that this server has completed.",
        MetricKind::kCounter,
        {}}},
      {Metric::kReceivedBytes,
       {"slimps_received_bytes_total",
        "Payload bytes of pushes, by format.",
        MetricKind::kCounter,
        {"format"}}},
      {Metric::kSentBytes,
       {"slimps_sent_bytes_total",
        "Payload bytes of answers to pulls, by format.",
        MetricKind::kCounter,
        {"format"}}},
      {Metric::kWaitedForWorker,
       {"slimps_waited_for_worker_seconds_total",
        "Seconds in which open rounds waited for this worker alone.",
        MetricKind::kCounter,
        {"worker"}}},
      {Metric::kSnapshotAge,
       {"slimps_snapshot_age_seconds",
        "Seconds since the newest snapshot was complete.",
        MetricKind::kGauge,
        {}}},
      {Metric::kNodeUp,
       {"slimps_node_up",
        "1 if the node is in the job and was heard in time, else 0.",
        MetricKind::kGauge,
        {}}},
      {Metric::kHeartbeatAge,
       {"slimps_heartbeat_age_seconds",
        "Seconds since the node was heard.",
        MetricKind::kGauge,
        {}}},
      {Metric::kRestarts,
       {"slimps_restarts_total",
        "Processes that have had this node's place before.",
        MetricKind::kCounter,
        {}}},
      {Metric::kStalls,
       {"slimps_stalls_total",
        "Waits for longer than --stall_warning (10 s if it is 0), and nodes that were silent.",
        MetricKind::kCounter,
        {}}},
      {Metric::kThresholdBytes,
       {"slimps_threshold_bytes",
        "fp32 bytes from which tensors are compressed.",
        MetricKind::kGauge,
        {"direction"}}},
      {Metric::kJobAge,
       {"slimps_job_age_seconds", "Seconds since the scheduler began.", MetricKind::kGauge, {}}}};
  return *catalogue;
}

}  // namespace

const MetricInfo* FindMetric(uint32_t number) {
  const auto found = Catalogue().find(static_cast<Metric>(number));
  return found == Catalogue().end() ? nullptr : &found->second;
}

const MetricInfo& InfoOf(Metric metric) { return Catalogue().at(metric); }

void AddSample(Metric metric, const std::vector<std::string>& labels, double value,
               watch::NodeReport* report) {
  CHECK_EQ(labels.size(), InfoOf(metric).labels.size()) << InfoOf(metric).name;
  watch::Sample* sample = report->add_samples();
  sample->set_metric(static_cast<uint32_t>(metric));
  for (const std::string& label : labels) sample->add_labels(label);
  sample->set_value(value);
}

double SumOf(const watch::NodeReport& report, Metric metric,
             const std::vector<std::string>& labels) {
  double sum = 0;
  for (const watch::Sample& sample : report.samples()) {
    if (sample.metric() != static_cast<uint32_t>(metric)) continue;
    if (static_cast<size_t>(sample.labels_size()) < labels.size()) continue;
    if (std::equal(labels.begin(), labels.end(), sample.labels().begin())) sum += sample.value();
  }
  return sum;
}

}  // namespace slimps
