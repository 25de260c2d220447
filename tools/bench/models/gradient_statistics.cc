// SPDX-License-Identifier: Apache-2.0
#include "tools/bench/models/gradient_statistics.h"

#include <optional>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace slimps {
namespace {

constexpr size_t kRanks = 6;

// Returns nullopt if a word is no number in its range: fractions from 0 to 1, others from 0.
std::optional<GradientStatistics> StatisticsOf(const std::vector<double>& numbers) {
  GradientStatistics found;
  if (numbers.size() == 1 && numbers[0] == 0) {
    found.rms = 0;
    return found;
  }
  if (numbers.size() != 6 && numbers.size() != 6 + kRanks) return std::nullopt;
  found.rms = numbers[0];
  found.cosine = numbers[1];
  found.zero_rows = numbers[2];
  found.row_spread = numbers[3];
  found.zero_cols = numbers[4];
  found.col_spread = numbers[5];
  found.energy.assign(numbers.begin() + 6, numbers.end());
  const auto fraction = [](double value) { return value >= 0 && value <= 1; };
  if (!(found.rms > 0) || !fraction(found.zero_rows) || !fraction(found.zero_cols)) {
    return std::nullopt;
  }
  if (!(found.row_spread >= 0) || !(found.col_spread >= 0)) return std::nullopt;
  double before = 0;
  for (const double energy : found.energy) {
    if (!fraction(energy) || energy < before) return std::nullopt;
    before = energy;
  }
  return found;
}

}  // namespace

absl::StatusOr<std::map<std::string, RecordedTensor>> ParseRecording(std::string_view text) {
  std::map<std::string, RecordedTensor> tensors;
  size_t number = 0;
  for (const absl::string_view line :
       absl::StrSplit(absl::string_view(text.data(), text.size()), '\n')) {
    ++number;
    if (line.empty() || line[0] == '#') continue;
    const std::vector<std::string> words = absl::StrSplit(line, ' ');
    RecordedTensor tensor;
    std::vector<double> numbers;
    bool valid = words.size() >= 4 && absl::SimpleAtoi(words[1], &tensor.rows) &&
                 absl::SimpleAtoi(words[2], &tensor.cols);
    for (size_t i = 3; i < words.size(); ++i) {
      valid = absl::SimpleAtod(words[i], &numbers.emplace_back()) && valid;
    }
    const std::optional<GradientStatistics> found = StatisticsOf(numbers);
    if (!valid || !found.has_value()) {
      return absl::InvalidArgumentError(absl::StrCat(
          "line ", number, ": expected NAME ROWS COLS and 1, 6 or 12 numbers, got '", line, "'"));
    }
    tensor.gradient = *found;
    if (!tensors.emplace(words[0], std::move(tensor)).second) {
      return absl::InvalidArgumentError(
          absl::StrCat("line ", number, ": ", words[0], " is there twice"));
    }
  }
  return tensors;
}

}  // namespace slimps
