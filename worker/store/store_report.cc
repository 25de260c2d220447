// SPDX-License-Identifier: Apache-2.0
// What a worker says of itself while the job runs.
#include <algorithm>
#include <functional>
#include <iterator>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "absl/strings/ascii.h"
#include "proto/base/trace/trace.h"
#include "watch/metrics.h"
#include "worker/store/dist_store.h"

namespace slimps {
namespace {

// A report with everything about more tensors or spans might exceed Limits::max_report_bytes.
constexpr size_t kMaxTensors = 1000;
constexpr size_t kMaxSpans = 1000;
// Rounds that take longer have no timeline.
constexpr absl::Duration kLongestRound = absl::Seconds(10);

// Returns the value of the label "codec".
std::string LabelOf(wire::Format format, std::string_view codec) {
  switch (format) {
    case wire::RAW_F32:
      return "none";
    case wire::RAW_F16:
      return "fp16";
    case wire::RAW_BF16:
      return "bf16";
    default:
      return codec.empty() ? absl::AsciiStrToLower(wire::Format_Name(format)) : std::string(codec);
  }
}

// Returns the name in a codec spec; "" if pulls are compressed as something else says.
std::string_view NameIn(std::string_view pull_compression) {
  const std::string_view name = pull_compression.substr(0, pull_compression.find(':'));
  return name == "none" || name == "policy" ? "" : name;
}

// Adds the spans of the newest round but one that pulls have brought: the newest may be under way.
void AddTimeline(SteadyTime now, watch::NodeReport* report) {
  const std::vector<TraceEvent> events = TraceLog::Global().EventsSince(now - kLongestRound);
  std::set<uint64_t> pulled;
  for (const TraceEvent& event : events) {
    if (event.stage == TraceStage::kPull) pulled.insert(event.round);
  }
  if (pulled.size() < 2) return;
  const uint64_t round = *std::next(pulled.rbegin());
  SteadyTime began = SteadyTime::InfinitePast();
  for (const TraceEvent& event : events) {  // in order of beginning
    if (event.round != round || event.key.empty()) continue;
    if (static_cast<size_t>(report->timeline_size()) == kMaxSpans) return;
    if (began == SteadyTime::InfinitePast()) began = event.began;
    watch::Span& span = *report->add_timeline();
    span.set_stage(std::string(TraceStageName(event.stage)));
    span.set_tensor(event.key);
    span.set_begin_s(absl::ToDoubleSeconds(event.began - began));
    span.set_end_s(absl::ToDoubleSeconds(event.ended - began));
  }
}

}  // namespace

std::string DistStore::Report(bool details) const {
  watch::NodeReport report;
  const StoreTotals sums = totals();
  const uint64_t round = keys_.MaxPushedRounds();
  activity_.AddTo(&report);
  report.mutable_activity()->set_round(round);
  const auto add = [&report](Metric metric, const std::vector<std::string>& labels, auto value) {
    AddSample(metric, labels, static_cast<double>(value), &report);
  };
  const auto add_stage = [&](const char* stage, absl::Duration took) {
    add(Metric::kStageSeconds, {stage}, absl::ToDoubleSeconds(took));
  };
  add(Metric::kRound, {}, round);
  add(Metric::kPushes, {}, keys_.SumOfPushedRounds());
  add(Metric::kSharedMemoryBytes, {}, sums.bytes_shared);
  add(Metric::kCompressionGain, {}, sums.pushed.CompressionGain());
  add(Metric::kCompressionError, {}, sums.pushed.CompressionError());
  add(Metric::kRepeatedItems, {}, node_.courier()->sent_again());
  add_stage("copy", sums.copy);
  add_stage("encode", sums.encode);
  add_stage("send", sums.send);
  add_stage("wait", sums.wait);
  add_stage("decode", sums.decode);
  add(Metric::kQueueDepth, {"push"}, tensors_->pushes()->figures().queued);
  add(Metric::kQueueDepth, {"courier"}, node_.courier()->outstanding());
  add(Metric::kQueueDepth, {"pull"}, tensors_->pulls()->figures().queued);
  AddBytes(&report);
  if (details) {
    TraceLog::Global().Watch();
    AddTimeline(TraceLog::Global().Now(), &report);
    if (rank() == 0) AddTensors(&report);
  } else {
    TraceLog::Global().EndWatch();
  }
  return report.SerializeAsString();
}

void DistStore::AddBytes(watch::NodeReport* report) const {
  const PhasedPushes::Totals phases = tensors_->phases()->totals();
  std::map<std::string, uint64_t> pushed, pulled;
  for (const auto& [form, bytes] : tensors_->pushes()->figures().bytes) {
    pushed[LabelOf(form.first, form.second)] += bytes;
  }
  for (const auto& [format, bytes] : tensors_->pulls()->figures().bytes) {
    pulled[LabelOf(format, NameIn(options_.pull_compression))] += bytes;
  }
  const uint64_t rows = rows_->bytes_pulled();
  pulled["rows"] += rows;
  pushed["phases"] += phases.exchanged.bytes_pushed;
  pulled["phases"] += phases.exchanged.bytes_pulled;
  const auto add = [report](const char* direction, const std::map<std::string, uint64_t>& bytes) {
    for (const auto& [codec, sum] : bytes) {
      if (sum == 0) continue;
      AddSample(Metric::kPayloadBytes, {direction, codec}, static_cast<double>(sum), report);
    }
  };
  add("push", pushed);
  add("pull", pulled);
  AddSample(Metric::kRawBytes, {"push"},
            static_cast<double>(tensors_->pushes()->totals().prepared.elements * sizeof(float)),
            report);
  AddSample(Metric::kRawBytes, {"pull"},
            static_cast<double>(tensors_->pulls()->totals().elements * sizeof(float) + rows),
            report);
}

void DistStore::AddTensors(watch::NodeReport* report) const {
  const PullFigures pulls = tensors_->pulls()->figures();
  std::vector<const TensorPlan*> tensors = keys_.InNameOrder();
  std::ranges::stable_sort(tensors, std::greater<>(), &TensorPlan::elements);
  tensors.resize(std::min(tensors.size(), kMaxTensors));
  for (const TensorPlan* tensor : tensors) {
    const PushedForm form = tensors_->pushes()->newest_form(tensor->key);
    const auto pulled = pulls.of_keys.find(tensor->key.id());
    std::set<uint32_t> servers;
    for (const PartitionPlan& partition : tensor->partitions) servers.insert(partition.server);
    watch::TensorFigures& figures = *report->add_tensors();
    figures.set_name(tensor->key.typed_name());
    figures.set_elements(tensor->elements);
    figures.mutable_servers()->Add(servers.begin(), servers.end());
    if (form.first != wire::ABSENT) figures.set_codec(LabelOf(form.first, form.second));
    figures.set_rounds(keys_.PushedRounds(tensor->key));
    figures.set_push_bytes(tensors_->pushes()->counts(tensor->key).payload_bytes);
    figures.set_pull_bytes(pulled == pulls.of_keys.end() ? 0 : pulled->second);
  }
}

}  // namespace slimps
