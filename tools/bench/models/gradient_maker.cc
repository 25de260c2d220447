// SPDX-License-Identifier: Apache-2.0
#include "tools/bench/models/gradient_maker.h"

#include <algorithm>
#include <cmath>
#include <random>

namespace slimps {
namespace {

constexpr size_t kNormals = (1 << 20) + 1;
constexpr size_t kBlock = 1024;             // columns: a block of all v_k stays in the cache
constexpr double kLeastComponent = 1e-3;    // of the energy; smaller ones count as noise
constexpr double kSpreadOfNormal = 0.45;    // squared, of normally distributed numbers
constexpr uint64_t kCommon = ~uint64_t{0};  // the seed that all workers share

using Random = std::mt19937_64;
using Vector = std::vector<float>;

Random Seeded(uint64_t tensor, uint64_t worker) {
  std::seed_seq seed{tensor, worker & 0xffffffffu, worker >> 32};
  return Random(seed);
}

// What a worker has in common with the others, and what is its own.
struct Sources {
  Random common, own;
  double shared;                    // cosine of two workers' gradients
  float common_weight, own_weight;  // of squared sum 1

  Sources(const GradientStatistics& statistics, uint64_t tensor, uint64_t worker)
      : common(Seeded(tensor, kCommon)),
        own(Seeded(tensor, worker)),
        shared(std::clamp(statistics.cosine, 0.0, 1.0)),
        common_weight(static_cast<float>(std::sqrt(shared))),
        own_weight(static_cast<float>(std::sqrt(1 - shared))) {}
};

Vector Normals(size_t count, Random& random) {
  std::normal_distribution<float> normal;
  Vector values(count);
  for (float& value : values) value = normal(random);
  return values;
}

Vector Mixed(size_t count, Sources& sources) {
  Vector values = Normals(count, sources.common);
  const Vector own = Normals(count, sources.own);
  for (size_t i = 0; i < count; ++i) {
    values[i] = sources.common_weight * values[i] + sources.own_weight * own[i];
  }
  return values;
}

// Returns the energy of each component of a low rank. Their sum is at most 1.
std::vector<double> Components(const GradientStatistics& statistics, size_t least_extent) {
  std::vector<double> energies;
  double before = 0;
  for (size_t i = 0; i < statistics.energy.size(); ++i) {
    const size_t rank = std::min(size_t{1} << i, least_extent);
    const size_t more = rank - std::min(rank, energies.size());
    const double each = more == 0 ? 0 : (statistics.energy[i] - before) / static_cast<double>(more);
    if (each < kLeastComponent) break;
    energies.insert(energies.end(), more, each);
    before = statistics.energy[i];
  }
  return energies;
}

double NoiseOf(const std::vector<double>& energies) {
  double noise = 1;
  for (const double energy : energies) noise -= energy;
  return std::max(noise, 0.0);
}

// Returns by how much the norms of rows are spread without weights, squared. `vectors` are the u_k,
// and a row has `elements` elements. The same holds for columns.
double SquaredSpread(const std::vector<double>& energies, const std::vector<Vector>& vectors,
                     size_t elements) {
  const double noise = NoiseOf(energies);
  const double of_noise = kSpreadOfNormal * noise / static_cast<double>(elements);
  if (vectors.empty()) return of_noise;
  const size_t count = vectors.front().size();
  double norms = 0, squares = 0;
  for (size_t i = 0; i < count; ++i) {
    double square = noise;
    for (size_t k = 0; k < vectors.size(); ++k) {
      square += energies[k] * vectors[k][i] * vectors[k][i];
    }
    norms += std::sqrt(square);
    squares += square;
  }
  return of_noise - std::log(norms * norms / (squares * static_cast<double>(count)));
}

// Returns log-normal numbers. `squared` is the squared deviation of their logarithms.
Vector LogNormal(size_t count, double squared, Random& random) {
  const auto spread = static_cast<float>(std::sqrt(std::max(squared, 0.0)));
  Vector values = Normals(count, random);
  for (float& value : values) value = std::exp(spread * value);
  return values;
}

// Sets the drawn part to zero, but never all. `shared` of the draws are those of all workers.
void DrawZeros(double part, double shared, Sources& sources, Vector& values) {
  if (part <= 0) return;
  std::uniform_real_distribution<double> uniform;
  const size_t kept = std::uniform_int_distribution<size_t>(0, values.size() - 1)(sources.common);
  for (size_t i = 0; i < values.size(); ++i) {
    const double common = uniform(sources.common), own = uniform(sources.own);
    const bool alike = uniform(sources.common) < shared;
    if (i != kept && (alike ? common : own) < part) values[i] = 0;
  }
}

double Dot(const Vector& a, const Vector& b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += static_cast<double>(a[i]) * b[i];
  return sum;
}

// Scales the vectors' elements by `weights` and makes the vectors orthonormal (Gram and Schmidt,
// twice, since once is not accurate). One that depends on those before it becomes 0.
void Orthonormalise(const Vector& weights, std::vector<Vector>& vectors) {
  for (size_t k = 0; k < vectors.size(); ++k) {
    Vector& vector = vectors[k];
    for (size_t i = 0; i < vector.size(); ++i) vector[i] *= weights[i];
    const double before = std::sqrt(Dot(vector, vector));
    for (size_t j = 0; j < 2 * k; ++j) {
      const Vector& other = vectors[j % k];
      const auto dot = static_cast<float>(Dot(vector, other));
      for (size_t i = 0; i < vector.size(); ++i) vector[i] -= dot * other[i];
    }
    const double norm = std::sqrt(Dot(vector, vector));
    const auto factor = static_cast<float>(norm > 1e-4 * before ? 1 / norm : 0.0);
    for (float& value : vector) value *= factor;
  }
}

// Writes s N D_c of one row, whose weight is part of s.
class Noise final {
 public:
  Noise(const Vector& normal, const Vector& col_weights, Sources& sources)
      : normal_(normal), col_weights_(col_weights), sources_(sources) {}

  // Rows are written in order, since they draw from the sources.
  void Write(float scale, float* out) {
    std::uniform_int_distribution<size_t> place(0, normal_.size() - 1);
    size_t a = place(sources_.common), b = place(sources_.own);
    const float common = scale * sources_.common_weight, own = scale * sources_.own_weight;
    const size_t cols = col_weights_.size();
    for (size_t i = 0; i < cols;) {
      const size_t run = std::min(cols - i, normal_.size() - std::max(a, b));
      for (size_t j = 0; j < run; ++j) {
        out[i + j] = col_weights_[i + j] * (common * normal_[a + j] + own * normal_[b + j]);
      }
      i += run;
      a = (a + run) % normal_.size();
      b = (b + run) % normal_.size();
    }
  }

 private:
  const Vector& normal_;
  const Vector& col_weights_;
  Sources& sources_;
};

// Adds sum_k scales[k] left[k][row] right[k].
void AddComponents(const std::vector<float>& scales, const std::vector<Vector>& left, size_t row,
                   const std::vector<Vector>& right, size_t cols, float* out) {
  for (size_t begin = 0; begin < cols; begin += kBlock) {
    const size_t end = std::min(begin + kBlock, cols);
    for (size_t k = 0; k < left.size(); ++k) {
      const float u = scales[k] * left[k][row];
      const float* v = right[k].data();
      for (size_t i = begin; i < end; ++i) out[i] += u * v[i];
    }
  }
}

void ScaleToRms(double rms, std::span<float> values) {
  double square = 0;
  for (const float value : values) square += static_cast<double>(value) * value;
  const double now = std::sqrt(square / static_cast<double>(values.size()));
  const auto factor = static_cast<float>(now > 0 ? rms / now : 0.0);
  for (float& value : values) value *= factor;
}

}  // namespace

GradientMaker::GradientMaker(uint64_t worker) : worker_(worker) {
  Random random = Seeded(0, kCommon);
  normal_ = Normals(kNormals, random);
}

void GradientMaker::Make(const GradientStatistics& statistics, size_t rows, size_t cols,
                         uint64_t tensor, std::span<float> values) const {
  Sources sources(statistics, tensor + 1, worker_);
  const std::vector<double> energies = Components(statistics, std::min(rows, cols));
  std::vector<Vector> left, right;
  std::vector<float> scales;
  for (const double energy : energies) {
    left.push_back(Mixed(rows, sources));
    right.push_back(Normals(cols, sources.common));
    scales.push_back(static_cast<float>(std::sqrt(energy)));
  }
  const auto missing = [&](double spread, const std::vector<Vector>& vectors, size_t elements) {
    return spread * spread - SquaredSpread(energies, vectors, elements);
  };
  Vector row_weights = LogNormal(rows, missing(statistics.row_spread, left, cols), sources.common);
  Vector col_weights = LogNormal(cols, missing(statistics.col_spread, right, rows), sources.common);
  DrawZeros(statistics.zero_rows, sources.shared, sources, row_weights);
  DrawZeros(statistics.zero_cols, 1, sources, col_weights);
  Orthonormalise(row_weights, left);
  Orthonormalise(col_weights, right);
  const double s =
      std::sqrt(NoiseOf(energies) / Dot(row_weights, row_weights) / Dot(col_weights, col_weights));
  Noise noise(normal_, col_weights, sources);
  for (size_t row = 0; row < rows; ++row) {
    float* out = values.data() + row * cols;
    noise.Write(static_cast<float>(s) * row_weights[row], out);
    AddComponents(scales, left, row, right, cols, out);
  }
  ScaleToRms(statistics.rms, values);
}

}  // namespace slimps
