// SPDX-License-Identifier: Apache-2.0
#include "tools/bench/models/codec_error.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "compress/codec/codec.h"
#include "compress/codec/phases.h"
#include "proto/base/status_macros.h"
#include "tools/bench/models/gradient_maker.h"

namespace slimps {
namespace {

using Columns = std::vector<std::vector<double>>;

double Norm2(std::span<const float> values) {
  double sum = 0;
  for (const float x : values) sum += static_cast<double>(x) * x;
  return sum;
}

// Makes the columns orthonormal (modified Gram-Schmidt). A column that depends on those before
// becomes 0.
void Orthonormalise(Columns* columns) {
  for (size_t i = 0; i < columns->size(); ++i) {
    std::vector<double>& own = (*columns)[i];
    const auto dot = [&own](const std::vector<double>& other) {
      return std::inner_product(own.begin(), own.end(), other.begin(), 0.0);
    };
    const double before = std::sqrt(dot(own));
    for (size_t j = 0; j < i; ++j) {
      const double share = dot((*columns)[j]);
      for (size_t k = 0; k < own.size(); ++k) own[k] -= share * (*columns)[j][k];
    }
    const double norm = std::sqrt(dot(own));
    const double scale = norm > 1e-9 * before ? 1 / norm : 0;
    for (double& x : own) x *= scale;
  }
}

// Returns matrix^T p: `rank` columns of one number for each column of the matrix.
Columns TimesTransposed(std::span<const float> matrix, size_t columns, const Columns& p) {
  Columns q(p.size(), std::vector<double>(columns));
  for (size_t r = 0; r < p.size(); ++r) {
    for (size_t i = 0; i < p[r].size(); ++i) {
      const double factor = p[r][i];
      const std::span<const float> row = matrix.subspan(i * columns, columns);
      for (size_t j = 0; j < columns; ++j) q[r][j] += factor * row[j];
    }
  }
  return q;
}

absl::StatusOr<double> ErrorOfTensor(const Codec& codec, const ModelTensor& tensor,
                                     std::span<const float> gradient) {
  if (!codec.Takes(tensor.shape)) return 0;
  if (codec.phases() != nullptr) {
    if (codec.phases()->AuxiliaryKeys(tensor.shape).empty()) return 0;
    const CodecSpec& spec = codec.spec();
    const auto rank = spec.options.find("rank");
    uint64_t number = 0;
    if (rank == spec.options.end() || !absl::SimpleAtoi(rank->second, &number)) {
      return absl::InvalidArgumentError(absl::StrCat(
          "codec ", spec.name, ": expected one whose error one worker's payload shows, or ",
          "powersgd:rank=R"));
    }
    return LowRankError(gradient, tensor.rows(), number);
  }
  std::vector<std::byte> payload(codec.MaxPayloadBytes(gradient.size()));
  SLIMPS_ASSIGN_OR_RETURN(const EncodeStats stats,
                          codec.Encode({.gradient = gradient,
                                        .residual = {},
                                        .context = {.key = 1, .round = 1, .layer = tensor.layer}},
                                       payload));
  return stats.error_norm2;
}

}  // namespace

double LowRankError(std::span<const float> matrix, size_t rows, size_t rank) {
  const size_t columns = matrix.size() / rows;
  std::mt19937 random(1);
  std::normal_distribution<double> normal;
  Columns p(rank, std::vector<double>(rows));
  for (std::vector<double>& column : p)
    std::ranges::generate(column, [&] { return normal(random); });
  Columns q;
  for (int step = 0; step < kSteps; ++step) {
    Orthonormalise(&p);
    q = TimesTransposed(matrix, columns, p);
    if (step + 1 == kSteps) break;
    for (size_t r = 0; r < rank; ++r) {
      for (size_t i = 0; i < rows; ++i) {
        p[r][i] = std::inner_product(q[r].begin(), q[r].end(), matrix.begin() + i * columns, 0.0);
      }
    }
  }
  double error = Norm2(matrix);
  for (const std::vector<double>& column : q) {
    error -= std::inner_product(column.begin(), column.end(), column.begin(), 0.0);
  }
  return std::max(error, 0.0);
}

absl::StatusOr<double> ErrorOfCodec(const ModelShape& model, std::string_view codec) {
  SLIMPS_ASSIGN_OR_RETURN(const std::unique_ptr<Codec> made, MakeCodec(codec));
  const GradientMaker maker(/*worker=*/0);
  double error = 0, norm2 = 0;
  uint64_t number = 0;
  for (const ModelTensor& tensor : model.tensors) {
    ++number;
    if (tensor.elements() < kRawElements) continue;
    std::vector<float> gradient(tensor.elements());
    maker.Make(tensor.gradient, tensor.rows(), tensor.cols(), number, gradient);
    SLIMPS_ASSIGN_OR_RETURN(const double own, ErrorOfTensor(*made, tensor, gradient));
    error += own;
    norm2 += Norm2(gradient);
  }
  return norm2 > 0 ? error / norm2 : 0;
}

}  // namespace slimps
