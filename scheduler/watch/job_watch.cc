// SPDX-License-Identifier: Apache-2.0
#include "scheduler/watch/job_watch.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "scheduler/watch/advice.h"
#include "scheduler/watch/job_samples.h"
#include "scheduler/watch/waits.h"

namespace slimps {
namespace {

constexpr absl::Duration kNow = absl::Seconds(1);              // what a point of the history covers
constexpr absl::Duration kFiguresOver = NodeRates::kKept;      // what the figures cover
constexpr absl::Duration kUntoldPatience = absl::Seconds(10);  // without --stall_warning
constexpr size_t kMaxEventBytes = 1000;
constexpr char kDecision[] = "decision ";

// Returns "decision 2, from round 120 on: pushes 1bit from 4096 bytes, pulls raw; reason".
std::string Describe(const wire::CodecMap& map) {
  const auto way = [](const std::string& codec, bool has, uint64_t bytes) {
    if (codec.empty() || codec == "none" || !has) return std::string("raw");
    return absl::StrCat(codec, " from ", bytes, " bytes");
  };
  std::string text =
      absl::StrCat(kDecision, map.version(), ", from round ", map.from_round(), " on: ");
  if (map.policy().empty()) {
    absl::StrAppend(&text, "pushes ", way(map.codec(), map.has_threshold(), map.threshold_bytes()),
                    ", pulls ",
                    way(map.pull_codec(), map.has_pull_threshold(), map.pull_threshold_bytes()));
  } else {
    absl::StrAppend(&text, "policy ", map.policy(), ", ", map.entries_size(),
                    map.entries_size() == 1 ? " key" : " keys");
  }
  return map.reason().empty() ? text : absl::StrCat(text, "; ", map.reason());
}

}  // namespace

JobWatch::JobWatch(const Options& options, SteadyTime began)
    : options_(options), began_(began), now_(began) {
  view_.num_workers = options.num_workers;
  view_.num_servers = options.num_servers;
}

void JobWatch::TakeReport(const NodePlace& node, std::string_view bytes, SteadyTime now) {
  std::optional<watch::NodeReport> report = ParseNodeReport(
      bytes, {.num_workers = options_.num_workers, .num_servers = options_.num_servers});
  if (!report.has_value()) {
    ++dropped_;
    return;
  }
  rates_[node].Add(*report, now);
  if (node != NodePlace(wire::WORKER, 0)) {
    report->clear_tensors();
    report->clear_timeline();
  }
  if (report->tensors_size() > 0) key_names_.clear();
  for (const watch::TensorFigures& tensor : report->tensors()) {
    key_names_.try_emplace(tensor.key(), tensor.name());
  }
  reports_[node] = {*std::move(report), now};
}

void JobWatch::AddEvent(std::string text, SteadyTime now) {
  events_.push_back({now - began_, OneLine(text, kMaxEventBytes)});
  if (events_.size() > kMaxEvents) events_.pop_front();
}

void JobWatch::TakeDecision(const wire::CodecMap& decision, SteadyTime now) {
  if (decision.version() <= decision_version()) return;
  decision_ = decision;
  // A policy that decides often must not push failures out.
  if (!events_.empty() && events_.back().text.starts_with(kDecision)) events_.pop_back();
  AddEvent(Describe(decision), now);
}

std::vector<std::string> JobWatch::Observe(JobView view, const std::vector<std::string>& news,
                                           SteadyTime now) {
  now_ = now;
  ForgetFormer(view.nodes);
  view_ = std::move(view);
  for (const std::string& line : news) AddEvent(line, now);
  if (view_.decision.has_value()) TakeDecision(*view_.decision, now);
  history_.Add(now - began_, FiguresOf(rates_, options_.num_workers, kNow, now));
  figures_ = FiguresOf(rates_, options_.num_workers, kFiguresOver, now);
  if (view_.phase != JobView::Phase::kForming && view_.phase != JobView::Phase::kRunning) {
    stalls_.Clear();
    return {};
  }
  const bool tells = options_.stall_warning > absl::ZeroDuration();
  const WaitOptions options = {.patience = tells ? options_.stall_warning : kUntoldPatience,
                               .heartbeat_interval = options_.heartbeat_interval,
                               .decision_version = decision_version()};
  std::vector<std::string> lines =
      stalls_.Update(FindWaits(view_, reports_, now - began_, now, options), now);
  for (const std::string& line : lines) AddEvent(line, now);
  if (!tells) lines.clear();
  return lines;
}

void JobWatch::ForgetFormer(const std::vector<NodeView>& nodes) {
  for (const NodeView& former : view_.nodes) {
    const auto node = std::ranges::find(nodes, former.place, &NodeView::place);
    if (node != nodes.end() && node->restarts != former.restarts) reports_.erase(former.place);
  }
}

std::string JobWatch::Waits() const { return OneLine(stalls_.Lines(now_), kMaxEventBytes); }

nlohmann::json JobWatch::Json() const {
  return JobJson({.view = view_,
                  .reports = reports_,
                  .rates = rates_,
                  .figures = figures_,
                  .history = history_,
                  .events = events_,
                  .decision = decision_ ? &*decision_ : nullptr,
                  .key_names = key_names_,
                  .stalls = stalls_.GoingOn(now_),
                  .advice = AdviceFor(figures_),
                  .age = now_ - began_,
                  .heartbeat_interval = options_.heartbeat_interval,
                  .now = now_});
}

std::vector<NodeSamples> JobWatch::Samples() const {
  return SamplesOf(view_, reports_, decision_ ? &*decision_ : nullptr,
                   {.age = now_ - began_,
                    .heartbeat_interval = options_.heartbeat_interval,
                    .stalls = stalls_.begun()});
}

}  // namespace slimps
