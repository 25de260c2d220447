// SPDX-License-Identifier: Apache-2.0
// powersgd over whole jobs, beside the paper's algorithm 1 and 2 (arXiv 1905.13727) in fp64, which
// shares no code with the codec but the random stream.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <future>
#include <map>
#include <numbers>
#include <string>
#include <utility>
#include <vector>

#include "compress/format/philox.h"
#include "proto/base/key.h"
#include "tests/cluster/exchanges/planned_job.h"
#include "tests/cluster/hooked_transport.h"
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

const Plan kAllPush = AllPush(5);

std::vector<float> GradientOf(size_t tensor, size_t round, uint32_t worker) {
  return Random(ElementsOf(kShapes[tensor]), 1000 * round + 10 * tensor + worker);
}

Weights Expected(const Plan& plan, double rate, bool stores_sums) {
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

PlannedJob TheJob() {
  return {
      .options = Options(), .shapes = kShapes, .learning_rate = kRate, .gradient_of = GradientOf};
}

void ExpectNear(const Weights& got, const Weights& expected) {
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
  ExpectNear(TheJob().Run(kAllPush), Expected(kAllPush, kRate, /*stores_sums=*/false));
}

TEST(PowerSgdJob, WithoutAnOptimizerTheAnswerIsTheSum) {
  ExpectNear(TheJob().Run(kAllPush, /*stores_sums=*/true),
             Expected(kAllPush, kRate, /*stores_sums=*/true));
}

TEST(PowerSgdJob, AWorkerMayPushNothingAndAllMay) {
  Plan plan = kAllPush;
  plan[1] = {Does::kPush, Does::kNothing};
  plan[2] = {Does::kNothing, Does::kNothing};
  plan[3] = {Does::kNothing, Does::kPush};
  ExpectNear(TheJob().Run(plan), Expected(plan, kRate, /*stores_sums=*/false));
}

TEST(PowerSgdJob, GoesOnWithoutAWorkerThatLeaves) {
  Plan plan = kAllPush;
  for (size_t round = 2; round < plan.size(); ++round) plan[round][1] = Does::kLeave;
  ExpectNear(TheJob().Run(plan), Expected(plan, kRate, /*stores_sums=*/false));
}

// Worker 0 has P of a round without worker 1, while the server of Q still waits for it.
TEST(PowerSgdJob, ALeaveMayReachServersBetweenTwoPhases) {
  Plan plan = kAllPush;
  for (size_t round = 2; round < plan.size(); ++round) plan[round][1] = Does::kLeave;
  ClusterOptions options = Options();
  std::promise<void> sends_q;
  std::atomic<bool> is_sent{false};
  std::atomic<int> leaves{0};
  const auto of_worker_0 = [&](const Message& message) {
    for (const wire::PushItem& item : message.header.push_pull().push()) {
      const bool is_q = item.id().key() == Key::Auxiliary("q", "w0").id();
      if (is_q && item.round() == 3 && !is_sent.exchange(true)) sends_q.set_value();
    }
    return absl::OkStatus();
  };
  const auto of_worker_1 = [&, sent = sends_q.get_future().share()](const Message& message) {
    if (message.header.has_leave() && ++leaves == 2) sent.wait();
    return absl::OkStatus();
  };
  options.wrap = Hooked({of_worker_0, of_worker_1});
  ExpectNear(TheJob().Run(options, plan), Expected(plan, kRate, /*stores_sums=*/false));
  EXPECT_EQ(leaves, 2);
}

TEST(PowerSgdJob, LostRepeatedAndDelayedMessagesChangeNothing) {
  ClusterOptions options = Options();
  const auto undisturbed = TheJob().Run(options, kAllPush);
  options.worker_faults = {.seed = 11, .drop = 0.05, .duplicate = 0.1, .reorder = 0.1};
  options.store.retry_interval = absl::Milliseconds(20);
  EXPECT_EQ(TheJob().Run(options, kAllPush), undisturbed);
}

TEST(PowerSgdJob, NeitherServersNorCoalescingNorChecksumsChangeTheBits) {
  const auto weights = TheJob().Run(kAllPush);
  ClusterOptions options = Options();
  options.servers = 3;
  options.shard_threads = 2;
  options.store.coalesce = false;
  options.store.checksums = false;
  EXPECT_EQ(TheJob().Run(options, kAllPush), weights);
}

TEST(PowerSgdJob, AJobCutInHalfIsTheJobThatRanThrough) {
  const Checkpoint whole = TheJob().Train(0, 6, nullptr);
  const Checkpoint half = TheJob().Train(0, 3, nullptr);
  EXPECT_EQ(TheJob().Train(3, 6, &half).weights, whole.weights);
  Checkpoint forgotten = half;
  forgotten.residuals = TheJob().Train(0, 0, nullptr).residuals;
  EXPECT_NE(TheJob().Train(3, 6, &forgotten).weights, whole.weights);
}

TEST(PowerSgdJob, PushesFewBytesAndCountsThePhases) {
  InProcessCluster cluster(Options());
  cluster.RunWorkers([&](KVStore& store) {
    const Weights weights = TheJob().FirstWeights();
    const std::vector<InitTensor> tensors = TheJob().Tensors(weights);
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
