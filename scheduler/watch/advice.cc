// SPDX-License-Identifier: Apache-2.0
#include "scheduler/watch/advice.h"

#include <algorithm>
#include <cstdint>
#include <map>

#include "absl/strings/str_format.h"

namespace slimps {
namespace {

// The bounds are where following the advice gains time that people notice.
constexpr double kLowOverlap = 0.7;  // from here on training does not wait for the link
constexpr double kMuchBytes = 1e5;   // per second; below, the link is idle
constexpr double kMostBytes = 0.5;   // part of all bytes
constexpr double kManyTimes = 2;     // raw pulls, by pushes
constexpr double kFarMore = 2;       // one server, by the mean of the others
constexpr double kBusy = 0.2;        // part of the time that a server sums and steps
constexpr double kExposed = 0.2;     // part of the time that encoding takes
constexpr double kOftenLast = 0.25;  // part of the time

bool Waits(const Figures& figures) { return figures.overlap.value_or(1) < kLowOverlap; }

std::string OfRawPulls(const Figures& figures) {
  const double raw = figures.uncompressed_pull_bytes_per_s;
  const double all = figures.push_bytes_per_s + figures.pull_bytes_per_s;
  const double times = raw / std::max(figures.push_bytes_per_s, 1.0);
  if (!Waits(figures) || raw < kMuchBytes || raw < kMostBytes * all || times < kManyTimes) {
    return "";
  }
  return absl::StrFormat(
      "pulls take %.3g MB/s raw, %.0f times the pushes: compress them too (pull_compression)",
      raw / 1e6, times);
}

// Returns the one that is far above the mean of the others, or end().
std::map<uint32_t, double>::const_iterator FarAbove(const std::map<uint32_t, double>& all) {
  if (all.size() < 2) return all.end();
  const auto most = std::ranges::max_element(all, {}, [](const auto& one) { return one.second; });
  double others = 0;
  for (const auto& [rank, value] : all) others += rank == most->first ? 0 : value;
  const double mean = others / static_cast<double>(all.size() - 1);
  return most->second > kFarMore * mean ? most : all.end();
}

std::string OfServers(const Figures& figures) {
  const auto fullest = FarAbove(figures.server_bytes_per_s);
  if (fullest != figures.server_bytes_per_s.end() && fullest->second > kMuchBytes) {
    double all = 0;
    for (const auto& [rank, value] : figures.server_bytes_per_s) all += value;
    return absl::StrFormat(
        "server %d carries %.0f %% of all bytes: cut large tensors into smaller partitions",
        fullest->first, 100 * fullest->second / all);
  }
  const auto busiest = FarAbove(figures.server_busy);
  if (busiest != figures.server_busy.end() && busiest->second > kBusy) {
    return absl::StrFormat(
        "server %d is busy %.1f s per second, far more than the others: look what else its "
        "machine does",
        busiest->first, busiest->second);
  }
  return "";
}

std::string OfEncoding(const Figures& figures) {
  const double encode = figures.stage_s.at("encode") + figures.stage_s.at("copy");
  const double send = figures.stage_s.at("send");
  if (!Waits(figures) || encode < kExposed || encode < send) return "";
  return absl::StrFormat(
      "encoding takes %.1f s per second, more than sending (%.1f s): use a cheaper codec, or "
      "compress fewer tensors (threshold)",
      encode, send);
}

std::string OfLastWorker(const Figures& figures) {
  if (figures.waited_for.empty()) return "";
  const auto last =
      std::ranges::max_element(figures.waited_for, {}, [](const auto& one) { return one.second; });
  if (last->second < kOftenLast) return "";
  return absl::StrFormat("rounds waited %.0f %% of the time for worker %d alone",
                         100 * std::min(1.0, last->second), last->first);
}

}  // namespace

std::string AdviceFor(const Figures& figures) {
  for (const auto& advice : {OfRawPulls, OfServers, OfEncoding, OfLastWorker}) {
    std::string sentence = advice(figures);
    if (!sentence.empty()) return sentence;
  }
  return "";
}

}  // namespace slimps
