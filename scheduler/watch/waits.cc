// SPDX-License-Identifier: Apache-2.0
#include "scheduler/watch/waits.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <map>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "proto/net/membership/node_name.h"

namespace slimps {
namespace {

constexpr size_t kMaxDescribed = 8;    // nodes in one line
constexpr size_t kMaxNamed = 2;        // tensors in one line
constexpr int kReportedNames = 8;      // a server names no more of a round
constexpr size_t kMaxTextBytes = 120;  // of what others wrote

std::string Name(const NodePlace& place) { return NodeName(place.first, place.second); }

// Finds the waits of one moment.
class Finder final {
 public:
  Finder(const JobView& view, const ReportMap& reports, absl::Duration age, SteadyTime now,
         const WaitOptions& options)
      : view_(view), reports_(reports), age_(age), now_(now), options_(options) {}

  std::vector<Wait> Find() {
    if (view_.phase == JobView::Phase::kForming) {
      FindMissing();
    } else if (view_.phase == JobView::Phase::kRunning) {
      FindUnheard();
      FindRounds();
      FindAgreements();
    }
    return std::move(waits_);
  }

 private:
  Wait& Add(std::string id) {
    Wait& wait = waits_.emplace_back();
    wait.id = std::move(id);
    wait.patience = options_.patience;
    return wait;
  }

  const NodeView* FindNode(const NodePlace& place) const {
    const auto found = std::ranges::find(view_.nodes, place, &NodeView::place);
    return found == view_.nodes.end() ? nullptr : &*found;
  }

  bool IsLate(const NodePlace& place) const {
    const NodeView* const node = FindNode(place);
    return node == nullptr || node->state != NodeView::State::kThere ||
           node->unheard >= kLateIntervals * options_.heartbeat_interval;
  }

  // Returns "worker 1: last call push 12 s ago, at train.py:31", or what else is known of it.
  std::string Describe(const NodePlace& place) const {
    const std::string name = Name(place);
    const NodeView* const node = FindNode(place);
    if (node == nullptr) return absl::StrCat(name, ": not there");
    if (node->state == NodeView::State::kGone) return absl::StrCat(name, ": gone");
    std::string text = absl::StrCat(name, ": ");
    if (IsLate(place)) absl::StrAppend(&text, "not heard for ", Seconds(node->unheard), ", ");
    const auto taken = reports_.find(place);
    if (taken == reports_.end()) return text + "has not told what it does";
    const watch::Activity& activity = taken->second.report.activity();
    if (place.first != wire::WORKER || activity.call().empty()) return text + "no call yet";
    const std::string call = OneLine(activity.call(), kMaxTextBytes);
    const std::string lasted =
        Seconds(absl::Seconds(activity.seconds()) + (now_ - taken->second.at));
    absl::StrAppend(&text, activity.in_progress()
                               ? absl::StrCat("in ", call, " for ", lasted)
                               : absl::StrCat("last call ", call, " ", lasted, " ago"));
    if (activity.where().empty()) return text;
    return absl::StrCat(text, ", at ", OneLine(activity.where(), kMaxTextBytes));
  }

  std::string DescribeAll(const std::vector<NodePlace>& places) const {
    std::string text;
    for (size_t i = 0; i < std::min(places.size(), kMaxDescribed); ++i) {
      absl::StrAppend(&text, "; ", Describe(places[i]));
    }
    return text;
  }

  void FindMissing() {
    wire::Roster roster;
    roster.set_num_servers(view_.num_servers);
    roster.set_num_workers(view_.num_workers);
    std::string there;
    for (size_t i = 0; i < view_.nodes.size(); ++i) {
      const NodeView& node = view_.nodes[i];
      wire::NodeRef* const ref = roster.add_nodes()->mutable_node();
      ref->set_role(node.place.first);
      ref->set_rank(node.place.second);
      if (i >= kMaxDescribed) continue;
      absl::StrAppend(&there, i == 0 ? "" : ", ", Name(node.place), " (host ",
                      OneLine(node.host, kMaxTextBytes), ", pid ", node.pid, ")");
    }
    if (view_.nodes.size() > kMaxDescribed) {
      absl::StrAppend(&there, " and ", view_.nodes.size() - kMaxDescribed, " more");
    }
    Wait& wait = Add("missing");
    wait.age = age_;
    wait.before = "after ";
    wait.after = absl::StrCat(" the job waits for ", MissingNodes(roster),
                              "; there: ", there.empty() ? "nobody" : there);
    if (!view_.refusals.empty()) absl::StrAppend(&wait.after, "; ", view_.refusals.back());
    wait.over = "all nodes are there";
  }

  void FindUnheard() {
    for (const NodeView& node : view_.nodes) {
      if (node.state == NodeView::State::kLeft) continue;
      const bool is_there = node.state == NodeView::State::kThere;
      if (is_there && node.unheard < kLateIntervals * options_.heartbeat_interval) continue;
      Wait& wait = Add(absl::StrCat("unheard ", Name(node.place)));
      wait.age = node.unheard;
      wait.patience = is_there ? kToldIntervals * options_.heartbeat_interval
                               : absl::InfiniteDuration();  // its loss has been told
      wait.before = absl::StrCat(Name(node.place), " has not been heard for ");
      wait.over = is_there ? absl::StrCat(Name(node.place), " is heard again") : "";
      wait.blamed = {node.place};
    }
  }

  // A round is open for `seconds` by a report of a server. A server that is late may have finished
  // it, so its word ages no more.
  absl::Duration AgeOf(const NodePlace& server, const TakenReport& taken, double seconds) const {
    const absl::Duration since = IsLate(server) ? absl::ZeroDuration() : now_ - taken.at;
    return absl::Seconds(seconds) + since;
  }

  void FindRounds() {
    struct Open {
      absl::Duration age;
      std::vector<std::string> tensors;
      bool has_more = false;
      std::set<uint32_t> missing;
    };
    std::map<uint64_t, Open> rounds;
    for (const auto& [place, taken] : reports_) {
      if (place.first != wire::SERVER) continue;
      for (const watch::OpenRounds& round : taken.report.open_rounds()) {
        const absl::Duration age = AgeOf(place, taken, round.seconds());
        if (round.missing().empty()) {
          AddUnfinished(place, round, age);
          continue;
        }
        Open& open = rounds[round.round()];
        open.age = std::max(open.age, age);
        open.has_more |= round.tensors_size() >= kReportedNames;
        open.missing.insert(round.missing().begin(), round.missing().end());
        for (const std::string& tensor : round.tensors()) {
          if (std::ranges::find(open.tensors, tensor) == open.tensors.end()) {
            open.tensors.push_back(tensor);
          }
        }
      }
    }
    // Others wait because the oldest does. The oldest is not the one with the smallest number:
    // each tensor counts its own rounds.
    const auto oldest = std::ranges::max_element(
        rounds, std::less<>(), [](const auto& round) { return round.second.age; });
    for (auto round = rounds.begin(); round != rounds.end(); ++round) {
      const auto& [number, open] = *round;
      Wait& wait = Add(absl::StrCat("round ", number));
      wait.age = open.age;
      for (const uint32_t rank : open.missing) wait.blamed.emplace_back(wire::WORKER, rank);
      wait.before = absl::StrCat("round ", number, " waits ");
      wait.after = absl::StrCat(" for ", NodeNames(wait.blamed), ": ",
                                Names(open.tensors, open.has_more), DescribeAll(wait.blamed));
      wait.over = absl::StrCat("round ", number, " goes on");
      if (round != oldest) wait.patience = absl::InfiniteDuration();
    }
  }

  void AddUnfinished(const NodePlace& server, const watch::OpenRounds& round, absl::Duration age) {
    Wait& wait = Add(absl::StrCat("unfinished ", Name(server)));
    wait.age = age;
    wait.before = absl::StrCat(Name(server), " has not finished round ", round.round(), " for ");
    wait.after = absl::StrCat(", though all workers have pushed it: ",
                              Names({round.tensors().begin(), round.tensors().end()},
                                    round.tensors_size() >= kReportedNames));
    wait.over = absl::StrCat(Name(server), " goes on");
    wait.blamed = {server};
  }

  // Returns "s:a, s:b and 3 more tensors".
  static std::string Names(const std::vector<std::string>& tensors, bool has_more) {
    std::string names;
    for (size_t i = 0; i < std::min(tensors.size(), kMaxNamed); ++i) {
      absl::StrAppend(&names, i == 0 ? "" : ", ", OneLine(tensors[i], kMaxTextBytes));
    }
    if (tensors.size() <= kMaxNamed) return names;
    const size_t more = tensors.size() - kMaxNamed;
    return absl::StrCat(names, " and ", has_more ? "at least " : "", more, " more tensor",
                        more == 1 ? "" : "s");
  }

  void FindAgreements() {
    for (const OpenBarrier& barrier : view_.barriers) {
      if (barrier.missing.empty()) continue;
      Wait& wait = Add(absl::StrCat("barrier ", barrier.ticket, " ", barrier.name));
      const std::string what = absl::StrCat(
          barrier.sums ? "sum \"" : "barrier \"", OneLine(barrier.name, kMaxTextBytes), "\"",
          barrier.purpose.empty() ? "" : " for ", OneLine(barrier.purpose, kMaxTextBytes));
      AddAgreement(what, barrier.missing, &wait);
    }
    if (!view_.undeclared.missing.empty()) {
      const std::vector<std::string>& keys = view_.undeclared.keys;
      AddAgreement(absl::StrCat("the declaration of ",
                                Names(keys, static_cast<int>(keys.size()) >= kReportedNames)),
                   view_.undeclared.missing, &Add("declaration " + keys.front()));
    }
    if (!view_.unreported.empty()) {
      AddAgreement("the decision how to compress", view_.unreported,
                   &Add(absl::StrCat("decision after ", options_.decision_version)));
    }
  }

  void AddAgreement(const std::string& what, const std::vector<NodePlace>& missing, Wait* wait) {
    wait->before = absl::StrCat(what, " waits ");
    wait->after = absl::StrCat(" for ", NodeNames(missing), DescribeAll(missing));
    wait->over = absl::StrCat(what, " goes on");
    wait->blamed = missing;
  }

  const JobView& view_;
  const ReportMap& reports_;
  const absl::Duration age_;
  const SteadyTime now_;
  const WaitOptions& options_;
  std::vector<Wait> waits_;
};

}  // namespace

std::string Seconds(absl::Duration duration) {
  const double seconds = absl::ToDoubleSeconds(duration);
  const double tenths = std::floor(seconds * 10) / 10;
  return seconds < 10 ? absl::StrFormat("%g s", tenths) : absl::StrFormat("%.0f s", seconds);
}

std::vector<Wait> FindWaits(const JobView& view, const ReportMap& reports, absl::Duration age,
                            SteadyTime now, const WaitOptions& options) {
  return Finder(view, reports, age, now, options).Find();
}

}  // namespace slimps
