// SPDX-License-Identifier: Apache-2.0
#include "tools/bench/cluster/link_meter.h"

#include <algorithm>
#include <fstream>
#include <sstream>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "proto/base/clock.h"

namespace slimps {
namespace {

constexpr absl::Duration kPeriod = absl::Milliseconds(2);
constexpr double kBusyBytesPerSecond = 2e6;
// Indices of the columns of /proc/net/dev after the name.
constexpr size_t kBytesIn = 0;
constexpr size_t kBytesOut = 8;

}  // namespace

absl::StatusOr<LinkCounters> ParseLinkCounters(std::string_view text, std::string_view interface) {
  const std::string prefix = absl::StrCat(std::string(interface), ":");
  for (const std::string& line :
       std::vector<std::string>(absl::StrSplit(std::string(text), '\n'))) {
    const size_t begin = line.find_first_not_of(' ');
    if (begin == std::string::npos || line.compare(begin, prefix.size(), prefix) != 0) continue;
    const std::vector<std::string> columns =
        absl::StrSplit(line.substr(begin + prefix.size()), ' ', absl::SkipEmpty());
    LinkCounters counters;
    if (columns.size() <= kBytesOut || !absl::SimpleAtoi(columns[kBytesIn], &counters.in) ||
        !absl::SimpleAtoi(columns[kBytesOut], &counters.out)) {
      return absl::DataLossError(absl::StrCat(
          "counters of ", prefix, " expected 16 numbers, got \"", line.substr(begin), "\""));
    }
    return counters;
  }
  return absl::NotFoundError(
      absl::StrCat("no network interface ", std::string(interface), " in this namespace"));
}

absl::StatusOr<LinkCounters> ReadLinkCounters(const std::string& interface) {
  std::ifstream file("/proc/net/dev");
  std::ostringstream text;
  text << file.rdbuf();
  return ParseLinkCounters(text.str(), interface);
}

IntervalSet BusyIntervals(std::span<const LinkSample> samples, double bytes_per_second) {
  std::vector<Interval> busy;
  for (size_t i = 1; i < samples.size(); ++i) {
    const LinkSample& before = samples[i - 1];
    const LinkSample& now = samples[i];
    const uint64_t moved =
        std::max(now.counters.in - before.counters.in, now.counters.out - before.counters.out);
    const double seconds = absl::ToDoubleSeconds(now.at - before.at);
    if (static_cast<double>(moved) >= bytes_per_second * seconds && moved > 0) {
      busy.push_back({before.at, now.at});
    }
  }
  return IntervalSet(std::move(busy));
}

LinkMeter::LinkMeter(std::string interface)
    : interface_(std::move(interface)), thread_("link-meter", [this] { Run(); }) {}

LinkMeter::~LinkMeter() {
  if (thread_.joinable()) Stop();
}

IntervalSet LinkMeter::Stop() {
  stopping_.store(true);
  thread_.Join();
  return BusyIntervals(samples_, kBusyBytesPerSecond);
}

void LinkMeter::Run() {
  while (!stopping_.load()) {
    const absl::StatusOr<LinkCounters> counters = ReadLinkCounters(interface_);
    if (!counters.ok()) return;  // unexpected: callers read the counters before they make a meter
    samples_.push_back({MachineClock()->Now(), *counters});
    absl::SleepFor(kPeriod);
  }
}

}  // namespace slimps
