// SPDX-License-Identifier: Apache-2.0
#include "scheduler/watch/job_json.h"

#include <algorithm>
#include <optional>
#include <set>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "proto/net/membership/node_name.h"
#include "scheduler/watch/node_state.h"

namespace slimps {
namespace {

using Json = nlohmann::json;

constexpr absl::Duration kNewest = absl::Seconds(1);  // what "now" is, of a node

Json OrNull(std::optional<double> value) { return value.has_value() ? Json(*value) : Json(); }

std::string_view PhaseName(JobView::Phase phase) {
  switch (phase) {
    case JobView::Phase::kForming:
      return "forming";
    case JobView::Phase::kRunning:
      return "running";
    case JobView::Phase::kEnding:
      return "ending";
    case JobView::Phase::kFailed:
      return "failed";
    case JobView::Phase::kDone:
      return "done";
  }
  return "";
}

const TakenReport* FindReport(const JobPicture& picture, const NodePlace& place) {
  const auto found = picture.reports.find(place);
  return found == picture.reports.end() ? nullptr : &found->second;
}

Json CallJson(const TakenReport* taken, SteadyTime now) {
  if (taken == nullptr || taken->report.activity().call().empty()) return {};
  const watch::Activity& activity = taken->report.activity();
  return {{"name", activity.call()},
          {"in_progress", activity.in_progress()},
          {"seconds", activity.seconds() + absl::ToDoubleSeconds(now - taken->at)},
          {"where", activity.where()}};
}

Json NodeJson(const JobPicture& picture, const NodeView& node, const std::set<NodePlace>& blamed) {
  const TakenReport* const taken = FindReport(picture, node.place);
  const bool is_worker = node.place.first == wire::WORKER;
  const auto state = StateOf(node, taken, blamed, picture.heartbeat_interval, picture.now);
  Json json = {{"role", RoleName(node.place.first)},
               {"rank", node.place.second},
               {"host", node.host},
               {"pid", node.pid},
               {"state", state},
               {"restarts", node.restarts},
               {"heard_s", absl::ToDoubleSeconds(node.unheard)},
               {"round", nullptr},
               {"call", is_worker ? CallJson(taken, picture.now) : Json()},
               {"push_bytes_per_s", nullptr},
               {"pull_bytes_per_s", nullptr},
               {"queue", nullptr},
               {"snapshot_age_s", nullptr}};
  if (taken == nullptr) return json;
  if (is_worker) json["round"] = taken->report.activity().round();
  json["queue"] = SumOf(taken->report, Metric::kQueueDepth);
  const auto rates = picture.rates.find(node.place);
  if (rates == picture.rates.end()) return json;
  const auto rate = [&](Metric metric, const std::vector<std::string>& labels) {
    return rates->second.PerSecond(metric, labels, kNewest, picture.now);
  };
  json["push_bytes_per_s"] =
      is_worker ? rate(Metric::kPayloadBytes, {"push"}) : rate(Metric::kReceivedBytes, {});
  json["pull_bytes_per_s"] =
      is_worker ? rate(Metric::kPayloadBytes, {"pull"}) : rate(Metric::kSentBytes, {});
  json["snapshot_age_s"] = OrNull(rates->second.Newest(Metric::kSnapshotAge));
  return json;
}

// A place that no node has yet.
Json MissingJson(wire::Role role, uint32_t rank) {
  return {{"role", RoleName(role)},
          {"rank", rank},
          {"host", ""},
          {"pid", nullptr},
          {"state", "missing"},
          {"restarts", 0},
          {"heard_s", nullptr},
          {"round", nullptr},
          {"call", nullptr},
          {"push_bytes_per_s", nullptr},
          {"pull_bytes_per_s", nullptr},
          {"queue", nullptr},
          {"snapshot_age_s", nullptr}};
}

Json NodesJson(const JobPicture& picture) {
  std::map<NodePlace, const NodeView*> there;
  for (const NodeView& node : picture.view.nodes) there[node.place] = &node;
  std::set<NodePlace> blamed;
  for (const Stall& stall : picture.stalls) {
    blamed.insert(stall.blamed.begin(), stall.blamed.end());
  }
  Json nodes = Json::array();
  const auto add = [&](wire::Role role, uint32_t count) {
    for (uint32_t rank = 0; rank < count; ++rank) {
      const auto node = there.find({role, rank});
      nodes.push_back(node == there.end() ? MissingJson(role, rank)
                                          : NodeJson(picture, *node->second, blamed));
    }
  };
  add(wire::SERVER, picture.view.num_servers);
  add(wire::WORKER, picture.view.num_workers);
  return nodes;
}

Json FiguresJson(const Figures& figures) {
  return {{"rounds_per_s", figures.rounds_per_s},
          {"push_bytes_per_s", figures.push_bytes_per_s},
          {"pull_bytes_per_s", figures.pull_bytes_per_s},
          {"raw_push_bytes_per_s", figures.raw_push_bytes_per_s},
          {"raw_pull_bytes_per_s", figures.raw_pull_bytes_per_s},
          {"overlap", OrNull(figures.overlap)},
          {"compression_gain", OrNull(figures.compression_gain)},
          {"compression_error", OrNull(figures.compression_error)},
          {"stage_s", figures.stage_s}};
}

Json HistoryJson(const History& history) {
  Json points = Json::array();
  for (const HistoryPoint& point : history.points()) {
    points.push_back({{"t", point.t},
                      {"push_bytes_per_s", point.push_bytes_per_s},
                      {"pull_bytes_per_s", point.pull_bytes_per_s},
                      {"rounds_per_s", point.rounds_per_s},
                      {"overlap", OrNull(point.overlap)}});
  }
  return points;
}

Json DecisionJson(const JobPicture& picture) {
  if (picture.decision == nullptr) return {};
  const wire::CodecMap& map = *picture.decision;
  Json table = Json::array();
  for (const wire::ThresholdRow& row : map.table()) {
    table.push_back({{"direction", row.direction() == wire::PULL ? "pull" : "push"},
                     {"bytes", row.bytes()},
                     {"t_c_ms", row.t_c_ms()},
                     {"t_cq_ms", row.t_cq_ms()},
                     {"t_pq_ms", row.t_pq_ms()}});
  }
  Json keys = Json::array();
  for (const wire::CodecEntry& entry : map.entries()) {
    const auto name = picture.key_names.find(entry.key());
    keys.push_back({{"key", name == picture.key_names.end()
                                ? absl::StrCat(absl::Hex(entry.key(), absl::kZeroPad16))
                                : name->second},
                    {"codec", entry.codec()},
                    {"reason", entry.reason()}});
  }
  const auto bytes = [](bool has, uint64_t value) { return has ? Json(value) : Json(); };
  return {{"codec", map.codec()},
          {"pull_codec", map.pull_codec()},
          {"threshold_bytes", bytes(map.has_threshold(), map.threshold_bytes())},
          {"pull_threshold_bytes", bytes(map.has_pull_threshold(), map.pull_threshold_bytes())},
          {"policy", map.policy()},
          {"reason", map.reason()},
          {"table", std::move(table)},
          {"keys", std::move(keys)}};
}

// Worker 0 tells the details, where somebody looks.
Json TensorsJson(const TakenReport* taken) {
  Json tensors = Json::array();
  if (taken == nullptr) return tensors;
  for (const watch::TensorFigures& tensor : taken->report.tensors()) {
    tensors.push_back(
        {{"name", tensor.name()},
         {"elements", tensor.elements()},
         {"servers", std::vector<uint32_t>(tensor.servers().begin(), tensor.servers().end())},
         {"codec", tensor.codec()},
         {"rounds", tensor.rounds()},
         {"push_bytes", tensor.push_bytes()},
         {"pull_bytes", tensor.pull_bytes()}});
  }
  return tensors;
}

Json TimelineJson(const TakenReport* taken) {
  Json spans = Json::array();
  if (taken == nullptr) return spans;
  for (const watch::Span& span : taken->report.timeline()) {
    spans.push_back({{"role", "worker"},
                     {"rank", 0},
                     {"stage", span.stage()},
                     {"tensor", span.tensor()},
                     {"begin_s", span.begin_s()},
                     {"end_s", span.end_s()}});
  }
  return spans;
}

}  // namespace

uint64_t NewestRound(const ReportMap& reports) {
  uint64_t newest = 0;
  for (const auto& [place, taken] : reports) {
    newest = std::max<uint64_t>(newest, taken.report.activity().round());
  }
  return newest;
}

Json JobJson(const JobPicture& picture) {
  const JobView& view = picture.view;
  Json events = Json::array();
  for (const JobEvent& event : picture.events) {
    events.push_back({{"t", absl::ToDoubleSeconds(event.age)}, {"text", event.text}});
  }
  Json stalls = Json::array();
  for (const Stall& stall : picture.stalls) {
    stalls.push_back({{"text", stall.text}, {"seconds", absl::ToDoubleSeconds(stall.age)}});
  }
  return {{"job",
           {{"id", view.id},
            {"phase", PhaseName(view.phase)},
            {"seconds", absl::ToDoubleSeconds(picture.age)},
            {"num_workers", view.num_workers},
            {"num_servers", view.num_servers},
            {"round", NewestRound(picture.reports)},
            {"why", view.why}}},
          {"nodes", NodesJson(picture)},
          {"figures", FiguresJson(picture.figures)},
          {"history", HistoryJson(picture.history)},
          {"decision", DecisionJson(picture)},
          {"tensors", TensorsJson(FindReport(picture, {wire::WORKER, 0}))},
          {"timeline", TimelineJson(FindReport(picture, {wire::WORKER, 0}))},
          {"events", std::move(events)},
          {"stalls", std::move(stalls)},
          {"advice", picture.advice}};
}

}  // namespace slimps
