// SPDX-License-Identifier: Apache-2.0
// What a tensor's gradient is like: recorded from training (recorded/, record_gradients.py), and
// enough to tell tensors apart. A tensor counts as a matrix: its first extent is the rows, all
// others together are the columns. A row or column is zero if its norm is below 1e-6 of the largest
// one.
//
// Pure.
#ifndef SLIMPS_TOOLS_BENCH_MODELS_GRADIENT_STATISTICS_H_
#define SLIMPS_TOOLS_BENCH_MODELS_GRADIENT_STATISTICS_H_

#include <cstddef>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace slimps {

// The defaults are those of normally distributed numbers.
struct GradientStatistics {
  double rms = 1e-2;     // of all elements
  double cosine = 0;     // of the angle between two workers' gradients of one step
  double zero_rows = 0;  // fraction of rows that are zero
  // How far the other rows' norms are spread: the deviation of ln(norm) of a log-normal
  // distribution with their mean / rms.
  double row_spread = 0;
  double zero_cols = 0;  // as of rows
  double col_spread = 0;
  // energy[i] is the part of the squared norm that the best approximation of rank 2^i has, i to 5.
  // Empty: not known, or the tensor has one row or column.
  std::vector<double> energy{};
};

// One line of a recording.
struct RecordedTensor {
  size_t rows = 0;
  size_t cols = 0;
  GradientStatistics gradient;
};

// Parses a recording: lines of "NAME ROWS COLS RMS COSINE ZERO_ROWS ROW_SPREAD ZERO_COLS
// COL_SPREAD [ENERGY x 6]", or of "NAME ROWS COLS 0" for a tensor that had no gradient. Lines that
// begin with # are comments.
// InvalidArgument: a line is something else; the message has its number.
[[nodiscard]] absl::StatusOr<std::map<std::string, RecordedTensor>> ParseRecording(
    std::string_view text);

// Returns the recording of a model of models.h. Empty: there is none.
std::string_view RecordingOf(std::string_view model);

}  // namespace slimps

#endif  // SLIMPS_TOOLS_BENCH_MODELS_GRADIENT_STATISTICS_H_
