// SPDX-License-Identifier: Apache-2.0
#include "compress/policy/measured_rounds.h"

#include <algorithm>
#include <cmath>
#include <vector>

namespace slimps {
namespace {

// A tensor does not hold up training if all tensors have this many times its bytes, or more.
constexpr uint64_t kQuickRatio = 32;
constexpr int kProfileSizes = 6;

// Returns the sizes that the profile measures: the smallest and the largest of `sizes`, which go
// up, and some between them, at equal ratios as far as there are such sizes.
std::set<uint64_t> Spread(const std::vector<uint64_t>& sizes) {
  const auto log = [](uint64_t bytes) { return std::log2(static_cast<double>(bytes) + 1); };
  const double low = log(sizes.front()), high = log(sizes.back());
  std::set<uint64_t> chosen;
  for (int i = 0; i < kProfileSizes; ++i) {
    const double wanted = low + (high - low) * i / (kProfileSizes - 1);
    chosen.insert(*std::ranges::min_element(
        sizes, {}, [&](uint64_t bytes) { return std::abs(log(bytes) - wanted); }));
  }
  return chosen;
}

}  // namespace

RoundKind MeasuredRounds::KindOf(uint64_t round) const {
  if (PairOf(round) == 0) return RoundKind::kNotMeasured;
  switch (round % every_) {
    case 0:
      return RoundKind::kAsDecided;
    case 1:
      return RoundKind::kOtherWay;
    default:
      return RoundKind::kNotMeasured;
  }
}

uint64_t MeasuredRounds::PairOf(uint64_t round) const {
  if (every_ == 0) return 0;
  const uint64_t pair = round / every_;
  return pair * every_ < std::max<uint64_t>(first_, 1) ? 0 : pair;
}

std::set<uint64_t> ChooseSizes(const std::map<uint64_t, uint64_t>& tensors,
                               std::optional<uint64_t> threshold, uint64_t pair) {
  if (tensors.empty()) return {};
  uint64_t total = 0;
  for (const auto& [bytes, count] : tensors) total += bytes * count;
  std::vector<uint64_t> sizes;
  for (const auto& [bytes, count] : tensors) {
    const bool is_quick = sizes.empty() || bytes <= total / kQuickRatio;
    // The sizes so far are too close together to tell start-up time from rate.
    const bool is_needed =
        !is_quick && sizes.back() / kSizeRange < sizes.front() &&
        (bytes / kSizeRange >= sizes.front() || bytes == tensors.rbegin()->first);
    if (is_quick || is_needed) sizes.push_back(bytes);
  }
  if (pair == 0) return Spread(sizes);
  std::set<uint64_t> chosen = {sizes.front(), sizes.back(), sizes[pair % sizes.size()]};
  const auto above =
      threshold.has_value() ? std::ranges::lower_bound(sizes, *threshold) : sizes.end();
  if (above != sizes.end()) chosen.insert(*above);
  if (above != sizes.begin()) chosen.insert(*(above - 1));
  return chosen;
}

}  // namespace slimps
