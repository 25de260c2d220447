// SPDX-License-Identifier: Apache-2.0
#include "compress/codec/lowrank/spectrum.h"

#include <algorithm>
#include <cmath>
#include <eigen3/Eigen/Eigenvalues>

namespace slimps {
namespace {

using Floats =
    Eigen::Map<const Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>>;

Floats ViewOf(const MatrixView& matrix) {
  return {matrix.values, static_cast<Eigen::Index>(matrix.rows),
          static_cast<Eigen::Index>(matrix.columns)};
}

}  // namespace

Spectrum SpectrumOf(const MatrixView& matrix) {
  const auto size = static_cast<Eigen::Index>(matrix.shorter());
  Eigen::MatrixXd gram = Eigen::MatrixXd::Zero(size, size);
  const Eigen::MatrixXd a = ViewOf(matrix).cast<double>();
  if (matrix.is_wide()) {
    gram.selfadjointView<Eigen::Lower>().rankUpdate(a);
  } else {
    gram.selfadjointView<Eigen::Lower>().rankUpdate(a.transpose());
  }
  const Eigen::SelfAdjointEigenSolver<Eigen::MatrixXd> solver(gram);
  Spectrum spectrum;
  spectrum.values.resize(matrix.shorter());
  spectrum.vectors.resize(matrix.shorter() * matrix.shorter());
  for (Eigen::Index i = 0; i < size; ++i) {
    const Eigen::Index from = size - 1 - i;  // the solver's values rise
    spectrum.values[static_cast<size_t>(i)] = std::sqrt(std::max(0.0, solver.eigenvalues()[from]));
    Eigen::VectorXd::Map(&spectrum.vectors[static_cast<size_t>(i * size)], size) =
        solver.eigenvectors().col(from);
  }
  return spectrum;
}

std::vector<double> OtherSide(const MatrixView& matrix, std::span<const double> w) {
  const Eigen::Map<const Eigen::VectorXd> vector(w.data(), static_cast<Eigen::Index>(w.size()));
  std::vector<double> other(matrix.longer());
  auto out = Eigen::VectorXd::Map(other.data(), static_cast<Eigen::Index>(other.size()));
  if (matrix.is_wide()) {
    out = ViewOf(matrix).cast<double>().transpose() * vector;
  } else {
    out = ViewOf(matrix).cast<double>() * vector;
  }
  return other;
}

}  // namespace slimps
