// SPDX-License-Identifier: Apache-2.0
#include "compress/policy/robust.h"

#include <algorithm>
#include <numeric>
#include <utility>

namespace slimps {

namespace {

template <typename T>
T MeanWithoutEnds(std::vector<T> values) {
  if (values.empty()) return 0;
  const size_t trimmed = values.size() < 3 ? 0 : std::max<size_t>(1, values.size() / 4);
  std::ranges::sort(values);
  const auto first = values.begin() + static_cast<ptrdiff_t>(trimmed);
  const auto last = values.end() - static_cast<ptrdiff_t>(trimmed);
  return std::accumulate(first, last, T{0}) / static_cast<T>(last - first);
}

}  // namespace

int64_t TrimmedMean(std::vector<int64_t> values) { return MeanWithoutEnds(std::move(values)); }

double TrimmedMeanOfReals(std::vector<double> values) { return MeanWithoutEnds(std::move(values)); }

void SampleWindow::Add(int64_t value) {
  if (samples_.size() < kept_) {
    samples_.push_back(value);
    return;
  }
  samples_[oldest_] = value;
  oldest_ = (oldest_ + 1) % kept_;
}

}  // namespace slimps
