// SPDX-License-Identifier: Apache-2.0
#include "tools/bench/cluster/intervals.h"

#include <algorithm>
#include <cstddef>
#include <utility>

namespace slimps {

IntervalSet::IntervalSet(std::vector<Interval> intervals) {
  std::sort(intervals.begin(), intervals.end(),
            [](const Interval& a, const Interval& b) { return a.begin < b.begin; });
  for (const Interval& next : intervals) {
    if (next.begin >= next.end) continue;
    if (!parts_.empty() && next.begin <= parts_.back().end) {
      parts_.back().end = std::max(parts_.back().end, next.end);
    } else {
      parts_.push_back(next);
    }
  }
}

IntervalSet IntervalSet::Or(const IntervalSet& other) const {
  std::vector<Interval> all = parts_;
  all.insert(all.end(), other.parts_.begin(), other.parts_.end());
  return IntervalSet(std::move(all));
}

IntervalSet IntervalSet::And(const IntervalSet& other) const {
  IntervalSet common;
  for (size_t i = 0, j = 0; i < parts_.size() && j < other.parts_.size();) {
    const Interval& a = parts_[i];
    const Interval& b = other.parts_[j];
    const Interval both = {std::max(a.begin, b.begin), std::min(a.end, b.end)};
    if (both.begin < both.end) common.parts_.push_back(both);
    a.end < b.end ? ++i : ++j;
  }
  return common;
}

IntervalSet IntervalSet::Minus(const IntervalSet& other) const {
  IntervalSet rest;
  size_t j = 0;
  for (Interval part : parts_) {
    while (j < other.parts_.size() && other.parts_[j].end <= part.begin) ++j;
    for (size_t k = j; k < other.parts_.size() && other.parts_[k].begin < part.end; ++k) {
      const Interval& hole = other.parts_[k];
      if (part.begin < hole.begin) rest.parts_.push_back({part.begin, hole.begin});
      part.begin = hole.end;
    }
    if (part.begin < part.end) rest.parts_.push_back(part);
  }
  return rest;
}

absl::Duration IntervalSet::Length() const {
  absl::Duration sum;
  for (const Interval& part : parts_) sum += part.end - part.begin;
  return sum;
}

}  // namespace slimps
