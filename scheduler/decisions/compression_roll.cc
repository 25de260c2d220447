// SPDX-License-Identifier: Apache-2.0
#include "scheduler/decisions/compression_roll.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "proto/net/membership/node_name.h"

namespace slimps {
namespace {

constexpr size_t kMaxNamed = 8;    // ways to compress in one line
constexpr size_t kMaxBytes = 256;  // of one way

}  // namespace

void CompressionRoll::Note(uint32_t worker, const std::string& compression) {
  if (compression.empty()) return;
  std::string& said = said_[worker];
  const std::string shown = compression.substr(0, kMaxBytes);
  if (said == shown) return;
  said = shown;
  if (said_.size() < num_workers_) return;

  std::map<std::string, std::vector<std::pair<wire::Role, uint32_t>>> ways;
  for (const auto& [rank, way] : said_) ways[way].push_back({wire::WORKER, rank});
  differences_.clear();
  if (ways.size() < 2) return;
  std::vector<std::pair<uint32_t, std::string>> parts;  // by lowest rank
  for (const auto& [way, workers] : ways) {
    parts.push_back({workers[0].second, absl::StrCat(NodeNames(workers), ": ", way)});
  }
  std::ranges::sort(parts);
  for (size_t i = 0; i < std::min(parts.size(), kMaxNamed); ++i) {
    absl::StrAppend(&differences_, i == 0 ? "" : "; ", parts[i].second);
  }
}

}  // namespace slimps
