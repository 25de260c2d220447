// SPDX-License-Identifier: Apache-2.0
#include "scheduler/watch/stall_log.h"

#include <algorithm>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"

namespace slimps {
namespace {

std::string LineOf(const Wait& wait, absl::Duration age) {
  return absl::StrCat(wait.before, Seconds(age), wait.after);
}

}  // namespace

std::vector<std::string> StallLog::Update(const std::vector<Wait>& waits, SteadyTime now) {
  std::vector<std::string> lines;
  std::set<std::string> there;
  for (const Wait& wait : waits) {
    there.insert(wait.id);
    const auto [found, is_new] = open_.try_emplace(wait.id);
    Open& open = found->second;
    if (is_new) open.since = now;
    if (open.tell_at == absl::InfiniteDuration()) open.tell_at = wait.patience;
    if (wait.age.has_value()) open.since = now - *wait.age;
    open.newest = wait;
    const absl::Duration age = now - open.since;
    if (age < std::max(open.tell_at, wait.patience)) continue;
    lines.push_back(LineOf(wait, age));
    if (!open.told) ++begun_;
    open.told = true;
    while (open.tell_at <= age && open.tell_at < absl::InfiniteDuration()) open.tell_at *= 2;
  }
  for (auto open = open_.begin(); open != open_.end();) {
    if (there.contains(open->first)) {
      ++open;
      continue;
    }
    const auto& [since, tell_at, told, wait] = open->second;
    if (told && !wait.over.empty()) {
      lines.push_back(absl::StrCat(wait.over, " after ", Seconds(now - since)));
    }
    open = open_.erase(open);
  }
  return lines;
}

std::vector<Stall> StallLog::GoingOn(SteadyTime now) const {
  std::vector<Stall> stalls;
  for (const auto& [id, open] : open_) {
    if (!open.told || open.newest.patience == absl::InfiniteDuration()) continue;
    const absl::Duration age = now - open.since;
    stalls.push_back({LineOf(open.newest, age), age, open.newest.blamed});
  }
  return stalls;
}

std::string StallLog::Lines(SteadyTime now) const {
  std::vector<std::pair<absl::Duration, std::string>> lines;
  for (const auto& [id, open] : open_) {
    if (open.newest.patience == absl::InfiniteDuration()) continue;
    lines.emplace_back(open.since - now, LineOf(open.newest, now - open.since));
  }
  std::ranges::sort(lines);
  std::string text;
  for (const auto& [age, line] : lines) absl::StrAppend(&text, text.empty() ? "" : "; ", line);
  return text;
}

}  // namespace slimps
