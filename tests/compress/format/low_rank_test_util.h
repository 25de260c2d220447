// SPDX-License-Identifier: Apache-2.0
// Helpers that tests of low-rank payloads share: building a payload, and what it must decode to.
#ifndef SLIMPS_TESTS_COMPRESS_FORMAT_LOW_RANK_TEST_UTIL_H_
#define SLIMPS_TESTS_COMPRESS_FORMAT_LOW_RANK_TEST_UTIL_H_

#include <algorithm>
#include <cstddef>
#include <span>
#include <vector>

#include "compress/format/low_rank.h"

namespace slimps {

// Returns the payload of u (row after row) and v (column after column).
inline std::vector<std::byte> LowRankPayload(const LowRankLayout& layout,
                                             const std::vector<float>& u,
                                             const std::vector<float>& v) {
  std::vector<std::byte> payload(layout.PayloadBytes());
  BuildLowRankHeader(layout, payload);
  if (layout.rank == 0) return payload;
  const auto put = [&payload](const std::vector<float>& values, size_t at) {
    std::ranges::copy(std::as_bytes(std::span(values)),
                      payload.begin() + static_cast<ptrdiff_t>(at));
  };
  put(u, LowRankLayout::UOffset());
  put(v, layout.VOffset());
  return payload;
}

// Returns the partition's elements of U V^T, one by one. Does not use the payload's layout.
inline std::vector<float> Expanded(const LowRankLayout& layout, const std::vector<float>& u,
                                   const std::vector<float>& v) {
  const size_t columns = layout.grid.row_elements;
  std::vector<float> dense;
  for (size_t i = 0; i < layout.grid.elements; ++i) {
    const size_t row = (i + layout.grid.skip) / columns, column = (i + layout.grid.skip) % columns;
    float sum = 0;
    for (size_t k = 0; k < layout.rank; ++k) {
      const float product = u[row * layout.rank + k] * v[k * columns + column];
      sum += product;
    }
    dense.push_back(sum);
  }
  return dense;
}

}  // namespace slimps

#endif  // SLIMPS_TESTS_COMPRESS_FORMAT_LOW_RANK_TEST_UTIL_H_
