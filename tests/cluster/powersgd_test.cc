// SPDX-License-Identifier: Apache-2.0
// powersgd over whole jobs, beside the paper's algorithm 1 and 2 (arXiv 1905.13727) in fp64, which
// shares no code with the codec but the random stream.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <numbers>
#include <string>
#include <utility>
#include <vector>

#include "compress/format/philox.h"
#include "proto/base/key.h"
#include "proto/base/mutex.h"
#include "tests/cluster/in_process_cluster.h"
#include "tests/cluster/random_values.h"

namespace slimps {
namespace {

constexpr size_t kRank = 2;
constexpr double kRate = 0.125;
constexpr float kGradScale = 0.5f;

// The tensors: two matrices that are compressed, of which the second has four dimensions; one too
// small for that; a vector.
const std::vector<std::vector<int64_t>> kShapes = {{24, 20}, {9, 4, 3, 3}, {3, 4}, {7}};

size_t ElementsOf(const std::vector<int64_t>& shape) {
  size_t elements = 1;
  for (const int64_t extent : shape) elements *= static_cast<size_t>(extent);
  return elements;
}
bool IsCompressed(size_t tensor) { return tensor < 2; }

// A dense matrix in fp64, row after row.
struct Matrix {
  size_t rows = 0, columns = 0;
  std::vector<double> values;

  static Matrix Zeros(size_t rows, size_t columns) {
    return {rows, columns, std::vector<double>(rows * columns)};
  }
  double& at(size_t i, size_t j) { return values[i * columns + j]; }
  double at(size_t i, size_t j) const { return values[i * columns + j]; }

  Matrix Transposed() const {
    Matrix out = Zeros(columns, rows);
    for (size_t i = 0; i < rows; ++i) {
      for (size_t j = 0; j < columns; ++j) out.at(j, i) = at(i, j);
    }
    return out;
  }
  Matrix operator*(const Matrix& other) const {
    Matrix out = Zeros(rows, other.columns);
    for (size_t i = 0; i < rows; ++i) {
      for (size_t k = 0; k < columns; ++k) {
        for (size_t j = 0; j < other.columns; ++j) out.at(i, j) += at(i, k) * other.at(k, j);
      }
    }
    return out;
  }
  Matrix& Add(const Matrix& other, double factor = 1) {
    for (size_t i = 0; i < values.size(); ++i) values[i] += factor * other.values[i];
    return *this;
  }
};

// The columns by Gram and Schmidt.
Matrix Orthogonalised(Matrix p) {
  for (size_t k = 0; k < p.columns; ++k) {
    for (size_t before = 0; before < k; ++before) {
      double part = 0;
      for (size_t i = 0; i < p.rows; ++i) part += p.at(i, k) * p.at(i, before);
      for (size_t i = 0; i < p.rows; ++i) p.at(i, k) -= part * p.at(i, before);
    }
    double norm = 0;
    for (size_t i = 0; i < p.rows; ++i) norm += p.at(i, k) * p.at(i, k);
    for (size_t i = 0; i < p.rows; ++i) p.at(i, k) /= std::sqrt(norm);
  }
  return p;
}

// One tensor of the reference: Q, and each worker's error.
class Reference {
 public:
  Reference(size_t tensor, uint32_t workers)
      : rows_(static_cast<size_t>(kShapes[tensor][0])),
        columns_(ElementsOf(kShapes[tensor]) / rows_),
        q_(Matrix::Zeros(columns_, kRank)),
        errors_(workers, Matrix::Zeros(rows_, columns_)) {
    const Key key("w" + std::to_string(tensor));
    const PhiloxStream stream = PhiloxStream::Of(0, key.id(), 0, kAnyWorker, 0);
    for (uint32_t i = 0; i < columns_ * kRank; ++i) {
      const double a = (stream.Word(i / 2 * 2) + 1.0) / 4294967296.0;
      const double b = stream.Word(i / 2 * 2 + 1) / 4294967296.0;
      const double angle = 2 * std::numbers::pi * b, radius = std::sqrt(-2 * std::log(a));
      q_.at(i % columns_, i / columns_) = radius * (i % 2 == 0 ? std::cos(angle) : std::sin(angle));
    }
  }

  // Returns the sum of what the workers send; a gradient that is missing is none.
  Matrix Round(const std::map<uint32_t, std::vector<float>>& gradients) {
    Matrix p = Matrix::Zeros(rows_, kRank), q = Matrix::Zeros(columns_, kRank);
    for (const auto& [worker, gradient] : gradients) {
      Matrix& m = errors_[worker];  // M_w = gradient + e_w
      for (size_t i = 0; i < m.values.size(); ++i) {
        m.values[i] += double{gradient[i]} * double{kGradScale};
      }
      p.Add(m * q_);
    }
    if (gradients.empty()) return Matrix::Zeros(rows_, columns_);
    p = Orthogonalised(p);
    for (const auto& [worker, gradient] : gradients) {
      const Matrix mine = errors_[worker].Transposed() * p;
      q.Add(mine);
      errors_[worker].Add(p * mine.Transposed(), -1);
    }
    q_ = q;
    return p * q.Transposed();
  }

 private:
  const size_t rows_, columns_;
  Matrix q_;
  std::vector<Matrix> errors_;
};

// What a worker does in a round: pushes a gradient, pushes nothing, or is gone.
enum class Does { kPush, kNothing, kLeave };
using Plan = std::vector<std::vector<Does>>;  // by round, by worker

const Plan kAllPush(5, {Does::kPush, Does::kPush});

std::vector<float> GradientOf(size_t tensor, size_t round, uint32_t worker) {
  return Random(ElementsOf(kShapes[tensor]), 1000 * round + 10 * tensor + worker);
}

std::vector<std::vector<float>> Expected(const Plan& plan, double rate, bool stores_sums) {
  std::vector<std::vector<float>> weights;
  for (size_t t = 0; t < kShapes.size(); ++t) {
    std::vector<float> first = Random(ElementsOf(kShapes[t]), 100 + t);
    std::vector<double> w(first.begin(), first.end());
    Reference reference(t, 2);
    for (size_t round = 0; round < plan.size(); ++round) {
      std::map<uint32_t, std::vector<float>> gradients;
      size_t present = 0;
      for (uint32_t worker = 0; worker < 2; ++worker) {
        if (plan[round][worker] == Does::kLeave) continue;
        ++present;
        if (plan[round][worker] == Does::kPush) gradients[worker] = GradientOf(t, round, worker);
      }
      std::vector<double> sum(w.size());
      if (IsCompressed(t)) {
        sum = reference.Round(gradients).values;
      } else {
        for (const auto& [worker, gradient] : gradients) {
          for (size_t i = 0; i < sum.size(); ++i)
            sum[i] += double{gradient[i]} * double{kGradScale};
        }
      }
      for (size_t i = 0; i < w.size(); ++i) {
        w[i] = stores_sums ? sum[i] : w[i] - rate * sum[i] / static_cast<double>(present);
      }
    }
    weights.emplace_back(w.begin(), w.end());
  }
  return weights;
}

ClusterOptions Options() {
  ClusterOptions options{.workers = 2, .servers = 2};
  options.store.compression = "powersgd:rank=2";
  options.store.fixed_threshold_bytes = 0;
  options.store.grad_scale = kGradScale;
  return options;
}

std::pair<std::vector<std::vector<float>>, std::vector<InitTensor>> Tensors() {
  std::vector<std::vector<float>> weights;
  for (size_t t = 0; t < kShapes.size(); ++t) {
    weights.push_back(Random(ElementsOf(kShapes[t]), 100 + t));
  }
  std::vector<InitTensor> tensors;
  for (size_t t = 0; t < kShapes.size(); ++t) {
    tensors.push_back({.key = "w" + std::to_string(t), .shape = kShapes[t], .value = weights[t]});
  }
  return {std::move(weights), std::move(tensors)};
}

// Runs the plan, and returns the weights that worker 0 holds at the end.
std::vector<std::vector<float>> RunPlan(const ClusterOptions& options, const Plan& plan,
                                        bool stores_sums = false) {
  InProcessCluster cluster(options);
  std::vector<std::vector<float>> end;
  cluster.RunWorkers([&](KVStore& store) {
    auto [weights, tensors] = Tensors();
    ASSERT_STATUS_OK(store.Init(tensors));
    if (!stores_sums) ASSERT_STATUS_OK(store.SetOptimizer(Sgd(kRate)));
    ASSERT_STATUS_OK(store.Barrier());
    for (size_t round = 0; round < plan.size(); ++round) {
      const Does does = plan[round][store.rank()];
      if (does == Does::kLeave) {
        ASSERT_STATUS_OK(store.Leave());
        return;
      }
      for (size_t t = 0; t < tensors.size(); ++t) {
        if (does == Does::kNothing) {
          ASSERT_STATUS_OK(store.PushNothing(tensors[t].key));
        } else {
          ASSERT_STATUS_OK(
              store.Push(tensors[t].key, GradientOf(t, round, store.rank()), /*priority=*/0));
        }
      }
      // Every other round goes on without its weights.
      for (size_t t = 0; t < tensors.size() && round % 2 == 1; ++t) {
        ASSERT_STATUS_OK(store.Pull(tensors[t].key, weights[t], 0));
      }
    }
    for (size_t t = 0; t < tensors.size(); ++t) {
      ASSERT_STATUS_OK(store.Pull(tensors[t].key, weights[t], 0));
    }
    if (store.rank() == 0) end = weights;
  });
  return end;
}

void ExpectNear(const std::vector<std::vector<float>>& got,
                const std::vector<std::vector<float>>& expected) {
  ASSERT_EQ(got.size(), expected.size());
  for (size_t t = 0; t < got.size(); ++t) {
    ASSERT_EQ(got[t].size(), expected[t].size());
    for (size_t i = 0; i < got[t].size(); ++i) {
      ASSERT_NEAR(got[t][i], expected[t][i], 1e-5 * (1 + std::abs(expected[t][i])))
          << "tensor " << t << " element " << i;
    }
  }
}

TEST(PowerSgdJob, FollowsThePapersAlgorithms) {
  ExpectNear(RunPlan(Options(), kAllPush), Expected(kAllPush, kRate, /*stores_sums=*/false));
}

TEST(PowerSgdJob, WithoutAnOptimizerTheAnswerIsTheSum) {
  ExpectNear(RunPlan(Options(), kAllPush, /*stores_sums=*/true),
             Expected(kAllPush, kRate, /*stores_sums=*/true));
}

TEST(PowerSgdJob, AWorkerMayPushNothingAndAllMay) {
  Plan plan = kAllPush;
  plan[1] = {Does::kPush, Does::kNothing};
  plan[2] = {Does::kNothing, Does::kNothing};
  plan[3] = {Does::kNothing, Does::kPush};
  ExpectNear(RunPlan(Options(), plan), Expected(plan, kRate, /*stores_sums=*/false));
}

TEST(PowerSgdJob, GoesOnWithoutAWorkerThatLeaves) {
  Plan plan = kAllPush;
  for (size_t round = 2; round < plan.size(); ++round) plan[round][1] = Does::kLeave;
  ExpectNear(RunPlan(Options(), plan), Expected(plan, kRate, /*stores_sums=*/false));
}

TEST(PowerSgdJob, LostRepeatedAndDelayedMessagesChangeNothing) {
  ClusterOptions options = Options();
  const auto undisturbed = RunPlan(options, kAllPush);
  options.worker_faults = {.seed = 11, .drop = 0.05, .duplicate = 0.1, .reorder = 0.1};
  options.store.retry_interval = absl::Milliseconds(20);
  EXPECT_EQ(RunPlan(options, kAllPush), undisturbed);
}

TEST(PowerSgdJob, NeitherServersNorCoalescingNorChecksumsChangeTheBits) {
  const auto weights = RunPlan(Options(), kAllPush);
  ClusterOptions options = Options();
  options.servers = 3;
  options.shard_threads = 2;
  options.store.coalesce = false;
  options.store.checksums = false;
  EXPECT_EQ(RunPlan(options, kAllPush), weights);
}

// What a worker has after some rounds.
struct Checkpoint {
  std::vector<std::vector<float>> weights;
  std::map<uint32_t, std::string> residuals;
};

Checkpoint Train(size_t from, size_t to, const Checkpoint* start) {
  InProcessCluster cluster(Options());
  Mutex mutex;
  Checkpoint end;
  cluster.RunWorkers([&](KVStore& store) {
    auto [weights, tensors] = Tensors();
    for (size_t t = 0; start != nullptr && t < weights.size(); ++t) {
      std::ranges::copy(start->weights[t], weights[t].begin());
    }
    ASSERT_STATUS_OK(store.Init(tensors));
    ASSERT_STATUS_OK(store.SetOptimizer(Sgd(kRate)));
    if (start != nullptr) {
      ASSERT_STATUS_OK(store.LoadResiduals(start->residuals.at(store.rank())));
    }
    ASSERT_STATUS_OK(store.Barrier());
    for (size_t round = from; round < to; ++round) {
      for (size_t t = 0; t < tensors.size(); ++t) {
        ASSERT_STATUS_OK(store.Push(tensors[t].key, GradientOf(t, round, store.rank()), 0));
      }
    }
    for (size_t t = 0; t < tensors.size(); ++t) {
      ASSERT_STATUS_OK(store.Pull(tensors[t].key, weights[t], 0));
    }
    const auto residuals = store.SaveResiduals();
    ASSERT_STATUS_OK(residuals.status());
    MutexLock lock(&mutex);
    end.residuals[store.rank()] = *residuals;
    end.weights = weights;
  });
  return end;
}

TEST(PowerSgdJob, AJobCutInHalfIsTheJobThatRanThrough) {
  const Checkpoint whole = Train(0, 6, nullptr);
  const Checkpoint half = Train(0, 3, nullptr);
  EXPECT_EQ(Train(3, 6, &half).weights, whole.weights);
  Checkpoint forgotten = half;
  forgotten.residuals = Train(0, 0, nullptr).residuals;
  EXPECT_NE(Train(3, 6, &forgotten).weights, whole.weights);
}

TEST(PowerSgdJob, PushesFewBytesAndCountsThePhases) {
  InProcessCluster cluster(Options());
  cluster.RunWorkers([&](KVStore& store) {
    auto [weights, tensors] = Tensors();
    ASSERT_STATUS_OK(store.Init(tensors));
    ASSERT_STATUS_OK(store.SetOptimizer(Sgd(kRate)));
    ASSERT_STATUS_OK(store.Push(tensors[0].key, GradientOf(0, 0, store.rank()), 0));
    ASSERT_STATUS_OK(store.Wait());
    // P and Q, and at most both partitions' payloads.
    const uint64_t factors = 4 * kRank * (24 + 20);
    const uint64_t payloads = 4 * kRank * (24 + 2 * 20) + 2 * 32;
    const PushCounts counts = store.push_counts(tensors[0].key);
    EXPECT_EQ(counts.elements, 24 * 20);
    EXPECT_GE(counts.payload_bytes, factors);
    EXPECT_LE(counts.payload_bytes, factors + payloads);
    EXPECT_EQ(store.totals().bytes_pushed, counts.payload_bytes);
    EXPECT_GT(counts.input_norm2, 0);
    EXPECT_NEAR(counts.CompressionGain() + counts.CompressionError(), 1, 1e-4);
    const std::vector<double> sum =
        store.AllReduceSumFor("bytes", {static_cast<double>(counts.payload_bytes)}).value();
    EXPECT_EQ(sum[0], static_cast<double>(2 * factors + payloads)) << "one worker carries each";
  });
}

}  // namespace
}  // namespace slimps
