// SPDX-License-Identifier: Apache-2.0
#include "compress/kernels/frozen_variance.h"

#include <algorithm>

namespace slimps {
namespace {

// Returns the mean of the variances of elements that are not masked. It is summed in turn, so that
// servers and workers get the same bits.
float MeanVariance(std::span<const float> variance) {
  double sum = 0, count = 0;
  for (const float v : variance) {
    if (IsMasked(v)) continue;
    sum += v;
    ++count;
  }
  return count == 0 ? 0 : static_cast<float>(sum / count);
}

}  // namespace

bool AreRuns(std::span<const uint32_t> runs, size_t elements) {
  if (runs.size() % 2 != 0) return false;
  size_t end = 0;
  for (size_t i = 0; i < runs.size(); i += 2) {
    const size_t first = runs[i], count = runs[i + 1];
    if (count == 0 || first < end || first > elements || count > elements - first) return false;
    end = first + count;
  }
  return true;
}

std::vector<uint32_t> FindUnmasked(std::span<const float> gradient,
                                   std::span<const float> variance) {
  std::vector<uint32_t> runs;
  size_t end = 0;  // of the last run
  for (size_t i = 0; i < variance.size(); ++i) {
    if (!IsMasked(variance[i]) || gradient[i] == 0) continue;
    if (!runs.empty() && i == end) {
      ++runs.back();
    } else {
      if (runs.size() == 2 * kMaxUnmaskedRuns) break;
      runs.push_back(static_cast<uint32_t>(i));
      runs.push_back(1);
    }
    end = i + 1;
  }
  return runs;
}

std::vector<uint32_t> UnionOfRuns(std::span<const uint32_t> a, std::span<const uint32_t> b) {
  std::vector<uint32_t> runs;
  while (!a.empty() || !b.empty()) {
    std::span<const uint32_t>& next = b.empty() || (!a.empty() && a[0] <= b[0]) ? a : b;
    const uint32_t first = next[0], count = next[1];
    next = next.subspan(2);
    const size_t last = runs.size();
    if (last > 0 && first <= runs[last - 2] + runs[last - 1]) {
      runs[last - 1] = std::max(runs[last - 1], first + count - runs[last - 2]);
    } else {
      runs.push_back(first);
      runs.push_back(count);
    }
  }
  return runs;
}

void SettleMomentum(std::span<const uint32_t> runs, const SettleOptions& options,
                    std::span<float> momentum, std::span<float> variance) {
  const float floor = runs.empty() ? 0 : MeanVariance(variance);
  for (size_t run = 0; run < runs.size(); run += 2) {
    for (size_t i = runs[run]; i < size_t{runs[run]} + runs[run + 1]; ++i) {
      if (!IsMasked(variance[i])) continue;
      // A masked element had no momentum, so all of this one is of the gradient.
      const float gradient = momentum[i] * options.scale / (1 - options.beta1);
      const float v = std::max(floor, gradient * gradient);
      variance[i] = IsMasked(v) ? 0 : v;
    }
  }
  for (size_t i = 0; i < momentum.size(); ++i) {
    if (IsMasked(variance[i])) momentum[i] = 0;
  }
}

}  // namespace slimps
