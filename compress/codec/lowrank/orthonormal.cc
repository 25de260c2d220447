// SPDX-License-Identifier: Apache-2.0
#include "compress/codec/lowrank/orthonormal.h"

#include <algorithm>
#include <cmath>
#include <vector>

namespace slimps {
namespace {

// A row of which less than this part is left depends on the others. Rows are sums of fp32, whose
// rounding alone leaves a part of about 1e-7; that is a direction as good as any.
constexpr double kDependent = 1e-10;

double Dot(std::span<const double> a, std::span<const double> b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum;
}

// The rows that are orthonormal already, and the one that comes next.
struct Basis {
  std::span<double> values;
  const size_t columns;
  size_t done = 0;

  std::span<double> row(size_t i) const { return values.subspan(i * columns, columns); }

  // Takes the parts along the rows before away from the next row, and returns the norm of what is
  // left. Once would leave a part of 1e-16 / (what is left) in it.
  double Project() const {
    const std::span<double> next = row(done);
    for (int pass = 0; pass < 2; ++pass) {
      for (size_t i = 0; i < done; ++i) {
        const double part = Dot(next, row(i));
        const std::span<const double> other = row(i);
        for (size_t j = 0; j < columns; ++j) next[j] -= part * other[j];
      }
    }
    return std::sqrt(Dot(next, next));
  }

  // Makes the next row a unit vector that the rows before do not span: from column `first` on, the
  // first with at least half of the mean left. The mean over all is (columns - done) / columns.
  void Probe(size_t first) const {
    const double enough = 0.5 * static_cast<double>(columns - done) / static_cast<double>(columns);
    size_t chosen = first;
    for (size_t i = 0; i < columns; ++i) {
      const size_t column = (first + i) % columns;
      double left = 1;
      for (size_t j = 0; j < done; ++j) left -= row(j)[column] * row(j)[column];
      if (left < enough) continue;
      chosen = column;
      break;
    }
    std::ranges::fill(row(done), 0.0);
    row(done)[chosen] = 1;
  }
};

}  // namespace

void Orthonormalise(size_t rows, size_t columns, uint64_t turn, std::span<float> matrix) {
  std::vector<double> values(matrix.begin(), matrix.end());
  Basis basis{.values = values, .columns = columns};
  for (; basis.done < rows; ++basis.done) {
    const std::span<double> next = basis.row(basis.done);
    const double before = std::sqrt(Dot(next, next));
    if (!std::isfinite(before)) return;
    double left = basis.Project();
    if (!(left > kDependent * before)) {
      basis.Probe(static_cast<size_t>(turn % columns));
      left = basis.Project();
    }
    for (double& value : next) value /= left;
  }
  std::ranges::transform(values, matrix.begin(),
                         [](double value) { return static_cast<float>(value); });
}

}  // namespace slimps
