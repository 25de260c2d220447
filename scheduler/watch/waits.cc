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
#include "watch/metrics.h"

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
      FindCalls();
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
    return absl::StrCat(text, Where(activity));
  }

  // Returns ", at train.py:31", or "" if it is unknown.
  static std::string Where(const watch::Activity& activity) {
    if (activity.where().empty()) return "";
    return absl::StrCat(", at ", OneLine(activity.where(), kMaxTextBytes));
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

  // A round or a call has lasted for `seconds` by a report of a node. A node that is late may have
  // finished it, so its word ages no more.
  absl::Duration AgeOf(const NodePlace& node, const TakenReport& taken, double seconds) const {
    const absl::Duration since = IsLate(node) ? absl::ZeroDuration() : now_ - taken.at;
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
      wait.after =
          absl::StrCat(" for ", NodeNames(wait.blamed), ": ", Names(open.tensors, open.has_more),
                       DescribeAll(wait.blamed), DescribeQueue(FullestServer()));
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

  // Returns the server with most entries in its queues, and how many. Nobody: 0 entries.
  std::pair<NodePlace, double> FullestServer() const {
    std::pair<NodePlace, double> fullest;
    for (const auto& [place, taken] : reports_) {
      if (place.first != wire::SERVER) continue;
      const double queued = SumOf(taken.report, Metric::kQueueDepth);
      if (queued > fullest.second) fullest = {place, queued};
    }
    return fullest;
  }

  // Returns "; server 1 has 40 entries queued", or "" if none is.
  static std::string DescribeQueue(const std::pair<NodePlace, double>& server) {
    if (server.second == 0) return "";
    return absl::StrFormat("; %s has %.0f %s queued", Name(server.first), server.second,
                           server.second == 1 ? "entry" : "entries");
  }

  // True if the line of another wait says, or will say, why `worker` is in a call for `age`.
  bool IsExplained(const NodePlace& worker, absl::Duration age) const {
    const absl::Duration as_long = age - kLateIntervals * options_.heartbeat_interval;
    const auto explains = [&](const Wait& wait) {
      // An agreement explains the calls of those who have come to it.
      if (!wait.age.has_value()) return std::ranges::find(wait.blamed, worker) == wait.blamed.end();
      return wait.patience < absl::InfiniteDuration() &&
             *wait.age >= std::min(wait.patience, as_long);
    };
    return std::ranges::find(view_.nodes, NodeView::State::kGone, &NodeView::state) !=
               view_.nodes.end() ||
           std::ranges::any_of(waits_, explains);
  }

  // Finds calls that last too long. One line tells all of them that no other wait explains. The
  // others stay in the list in silence: a call that was told may be explained later.
  void FindCalls() {
    std::vector<std::pair<NodePlace, absl::Duration>> calls;
    std::vector<NodePlace> unexplained;
    for (const auto& [place, taken] : reports_) {
      const NodeView* const node = FindNode(place);
      if (place.first != wire::WORKER || node == nullptr) continue;
      const watch::Activity& activity = taken.report.activity();
      const absl::Duration age = AgeOf(place, taken, activity.seconds());
      if (node->state != NodeView::State::kThere || !activity.in_progress()) continue;
      if (age < options_.patience) continue;
      calls.emplace_back(place, age);
      if (!IsExplained(place, age)) unexplained.push_back(place);
    }
    for (const auto& [place, age] : calls) {
      Wait& wait = Add(absl::StrCat("call of ", Name(place)));
      wait.age = age;
      wait.over = absl::StrCat(Name(place), " goes on");
      if (!unexplained.empty() && place == unexplained.front()) {
        TellCall(unexplained, &wait);
      } else {
        wait.patience = absl::InfiniteDuration();
      }
    }
  }

  // Fills in the line about the call of workers[0], which names the others.
  void TellCall(const std::vector<NodePlace>& workers, Wait* wait) const {
    const watch::Activity& activity = reports_.at(workers[0]).report.activity();
    const std::pair<NodePlace, double> fullest = FullestServer();
    wait->before =
        absl::StrCat(Name(workers[0]), " is in ", OneLine(activity.call(), kMaxTextBytes), " for ");
    wait->after = absl::StrCat(Where(activity), DescribeAll({workers.begin() + 1, workers.end()}),
                               DescribeQueue(fullest));
    if (fullest.second > 0) wait->blamed = {fullest.first};
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
