// SPDX-License-Identifier: Apache-2.0
// What a server says of itself while the job runs.
#include <string>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "server/service/server_service.h"
#include "server/shard/shard_figures.h"
#include "watch/metrics.h"

namespace slimps {
namespace {

// "RAW_F32" becomes "raw_f32".
std::string LabelOf(size_t format) {
  return absl::AsciiStrToLower(wire::Format_Name(static_cast<wire::Format>(format)));
}

void AddBytes(Metric metric, const BytesByFormat& bytes, watch::NodeReport* report) {
  for (size_t format = 0; format < bytes.size(); ++format) {
    if (bytes[format] == 0) continue;
    AddSample(metric, {LabelOf(format)}, static_cast<double>(bytes[format]), report);
  }
}

void AddOpenRounds(const ShardSums& sums, SteadyTime now, watch::NodeReport* report) {
  for (const auto& [round, figures] : sums.open) {  // the oldest, for whom others wait, come first
    if (report->open_rounds_size() == kMaxOpenRounds) return;
    watch::OpenRounds& open = *report->add_open_rounds();
    open.set_round(round);
    open.set_seconds(absl::ToDoubleSeconds(now - figures.since));
    for (const std::string& tensor : figures.tensors) open.add_tensors(tensor);
    open.set_partitions(figures.partitions);
    open.mutable_missing()->Add(figures.missing.begin(), figures.missing.end());
  }
}

}  // namespace

watch::NodeReport ServerService::Report() const {
  ShardSums sums;
  size_t waiting = 0;
  for (const auto& shard : shards_) {
    shard->figures().AddTo(&sums);
    waiting += shard->waiting();
  }
  const SteadyTime now = clock_->Now();
  watch::NodeReport report;
  report.set_seconds(absl::ToDoubleSeconds(now - began_));
  AddSample(Metric::kRoundsOver, {}, static_cast<double>(sums.rounds), &report);
  AddSample(Metric::kRepeatedItems, {}, static_cast<double>(sums.repeats), &report);
  AddSample(Metric::kStageSeconds, {"step"}, absl::ToDoubleSeconds(sums.step), &report);
  AddSample(Metric::kQueueDepth, {"shards"}, static_cast<double>(waiting), &report);
  AddBytes(Metric::kReceivedBytes, sums.received, &report);
  AddBytes(Metric::kSentBytes, sums.sent, &report);
  for (size_t worker = 0; worker < sums.waited.size(); ++worker) {
    AddSample(Metric::kWaitedForWorker, {absl::StrCat(worker)},
              absl::ToDoubleSeconds(sums.waited[worker]), &report);
  }
  const SteadyTime newest = counters().snapshots.newest;
  if (newest != SteadyTime::InfinitePast()) {
    AddSample(Metric::kSnapshotAge, {}, absl::ToDoubleSeconds(now - newest), &report);
  }
  AddOpenRounds(sums, now, &report);
  return report;
}

}  // namespace slimps
