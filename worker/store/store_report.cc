// SPDX-License-Identifier: Apache-2.0
// What a worker says of itself while the job runs.
#include <algorithm>
#include <functional>
#include <iterator>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "proto/base/trace/trace.h"
#include "proto/limits.h"
#include "watch/metrics.h"
#include "worker/store/dist_store.h"

namespace slimps {
namespace {

// More of them would show nobody anything.
constexpr size_t kMaxTensors = 1000;
constexpr size_t kMaxSpans = 1000;
constexpr size_t kEntryOverhead = 8;  // bytes around an entry of a repeated field, at most
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

// Takes what the entry takes in a report from `room`. Returns false if there is too little. A
// report beyond Limits::max_report_bytes would be left out as a whole.
bool Fits(const google::protobuf::Message& entry, size_t* room) {
  const size_t bytes = entry.ByteSizeLong() + kEntryOverhead;
  if (bytes > *room) return false;
  *room -= bytes;
  return true;
}

// Adds the spans of the newest round but one that pulls have brought: the newest may be under way.
void AddTimeline(SteadyTime now, size_t room, watch::NodeReport* report) {
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
    watch::Span span;
    span.set_stage(std::string(TraceStageName(event.stage)));
    span.set_tensor(event.key);
    span.set_begin_s(absl::ToDoubleSeconds(event.began - began));
    span.set_end_s(absl::ToDoubleSeconds(event.ended - began));
    if (!Fits(span, &room)) return;
    *report->add_timeline() = std::move(span);
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
  add(Metric::kCompressedNorm, {}, sums.pushed.input_norm2);
  add(Metric::kSentNorm, {}, sums.pushed.decoded_norm2);
  add(Metric::kLostNorm, {}, sums.pushed.error_norm2);
  add(Metric::kRepeatedItems, {}, node_.courier()->sent_again());
  add_stage("copy", sums.copy);
  add_stage("encode", sums.encode);
  add_stage("send", sums.send);
  add_stage("decode", sums.decode);
  const PushFigures pushes = tensors_->pushes()->figures();
  const PullFigures pulls = tensors_->pulls()->figures();
  add(Metric::kQueueDepth, {"push"}, pushes.queued);
  add(Metric::kQueueDepth, {"courier"}, node_.courier()->outstanding());
  add(Metric::kQueueDepth, {"pull"}, pulls.queued);
  AddBytes(pushes, pulls, &report);
  if (details && rank() == 0) AddDetails(&report);
  return report.SerializeAsString();
}

void DistStore::AddBytes(const PushFigures& pushes, const PullFigures& pulls,
                         watch::NodeReport* report) const {
  const PhasedPushes::Totals phases = tensors_->phases()->totals();
  std::map<std::string, uint64_t> pushed, pulled;
  for (const auto& [form, bytes] : pushes.bytes) {
    pushed[LabelOf(form.first, form.second)] += bytes;
  }
  for (const auto& [format, bytes] : pulls.bytes) {
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

void DistStore::AddDetails(watch::NodeReport* report) const {
  const size_t used = report->ByteSizeLong();
  size_t room = kDefaultLimits.max_report_bytes - std::min(used, kDefaultLimits.max_report_bytes);
  size_t for_tensors = room / 2;
  room -= for_tensors;
  const std::map<KeyId, uint64_t> bytes_pulled = tensors_->pulls()->bytes_of_keys();
  std::vector<const TensorPlan*> tensors = keys_.InNameOrder();
  std::ranges::stable_sort(tensors, std::greater<>(), &TensorPlan::elements);
  tensors.resize(std::min(tensors.size(), kMaxTensors));
  for (const TensorPlan* tensor : tensors) {
    const PushedForm form = tensors_->pushes()->newest_form(tensor->key);
    const auto pulled = bytes_pulled.find(tensor->key.id());
    std::set<uint32_t> servers;
    for (const PartitionPlan& partition : tensor->partitions) servers.insert(partition.server);
    watch::TensorFigures figures;
    figures.set_name(tensor->key.typed_name());
    figures.set_key(tensor->key.id());
    figures.set_elements(tensor->elements);
    figures.mutable_servers()->Add(servers.begin(), servers.end());
    if (form.first != wire::ABSENT) figures.set_codec(LabelOf(form.first, form.second));
    figures.set_rounds(keys_.PushedRounds(tensor->key));
    figures.set_push_bytes(tensors_->pushes()->counts(tensor->key).payload_bytes);
    figures.set_pull_bytes(pulled == bytes_pulled.end() ? 0 : pulled->second);
    if (!Fits(figures, &for_tensors)) break;
    *report->add_tensors() = std::move(figures);
  }
  AddTimeline(TraceLog::Global().Now(), room + for_tensors, report);
}

}  // namespace slimps
