// SPDX-License-Identifier: Apache-2.0
// The singular values of a matrix, with the singular vectors of its shorter side.
//
//   Spectrum spectrum = SpectrumOf({.rows = 256, .columns = 1152, .values = values});
//   spectrum.values[0]; spectrum.Vector(0);          // the largest singular value and its vector
//
// They come from the eigenvectors of A A^T (or A^T A, if A has more rows than columns) in fp64. A
// singular value under some 1e-8 of the largest is noise. The vectors are orthonormal to fp64's
// rounding all the same. For any orthonormal basis w the sum of w (A^T w)^T is A, so whoever takes
// atoms from here can rely on that, whatever the small singular values are. Pure; thread-safe.
#ifndef SLIMPS_COMPRESS_CODEC_LOWRANK_SPECTRUM_H_
#define SLIMPS_COMPRESS_CODEC_LOWRANK_SPECTRUM_H_

#include <cstddef>
#include <span>
#include <vector>

namespace slimps {

// A matrix, row after row. The values are finite.
struct MatrixView {
  size_t rows = 0;
  size_t columns = 0;
  const float* values = nullptr;

  bool is_wide() const { return rows <= columns; }
  size_t shorter() const { return is_wide() ? rows : columns; }
  size_t longer() const { return is_wide() ? columns : rows; }
};

// The singular values, falling, and for each the unit vector of the shorter side.
struct Spectrum {
  std::vector<double> values;   // shorter() of them
  std::vector<double> vectors;  // shorter() numbers for each, one vector after another

  std::span<const double> Vector(size_t i) const {
    return std::span(vectors).subspan(i * values.size(), values.size());
  }
};

// Throws std::bad_alloc. REQUIRES: the matrix has elements, all finite and under 2^64.
Spectrum SpectrumOf(const MatrixView& matrix);

// Returns A^T w for a wide matrix, A w otherwise: the other side's vector, times the singular value
// if w is a singular vector. REQUIRES: w.size() == matrix.shorter().
std::vector<double> OtherSide(const MatrixView& matrix, std::span<const double> w);

}  // namespace slimps

#endif  // SLIMPS_COMPRESS_CODEC_LOWRANK_SPECTRUM_H_
