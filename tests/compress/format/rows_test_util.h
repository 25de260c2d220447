// SPDX-License-Identifier: Apache-2.0
// Helpers that tests of row-sparse payloads share: building a payload, choosing rows, and marking
// them.
#ifndef SLIMPS_TESTS_COMPRESS_FORMAT_ROWS_TEST_UTIL_H_
#define SLIMPS_TESTS_COMPRESS_FORMAT_ROWS_TEST_UTIL_H_

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <random>
#include <span>
#include <vector>

#include "compress/format/rows.h"

namespace slimps {

// Returns a payload of the chosen `rows` of `dense`, which is the whole partition.
inline std::vector<std::byte> RowsPayload(const RowGrid& grid, const std::vector<uint32_t>& rows,
                                          const std::vector<float>& dense) {
  std::vector<std::byte> payload(RowsPayloadBytes(grid, rows));
  size_t at = BuildRowsHeader(grid, rows, payload);
  for (const uint32_t row : rows) {
    for (size_t i = grid.Begin(row); i < grid.End(row); ++i, at += sizeof(float)) {
      std::memcpy(payload.data() + at, &dense[i], sizeof(float));
    }
  }
  return payload;
}

// Returns rows of `grid` in rising order, each chosen with this probability.
inline std::vector<uint32_t> SomeRows(const RowGrid& grid, double probability, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::bernoulli_distribution chosen(probability);
  std::vector<uint32_t> rows;
  for (size_t row = 0; row < grid.rows(); ++row) {
    if (chosen(random)) rows.push_back(static_cast<uint32_t>(row));
  }
  return rows;
}

// Returns 1 for each element in one of `rows`, and 0 for each other element.
inline std::vector<uint8_t> InRows(const RowGrid& grid, const std::vector<uint32_t>& rows) {
  std::vector<uint8_t> chosen(grid.rows(), 0), in(grid.elements, 0);
  for (const uint32_t row : rows) chosen[row] = 1;
  for (size_t i = 0; i < grid.elements; ++i) in[i] = chosen[(i + grid.skip) / grid.row_elements];
  return in;
}

}  // namespace slimps

#endif  // SLIMPS_TESTS_COMPRESS_FORMAT_ROWS_TEST_UTIL_H_
