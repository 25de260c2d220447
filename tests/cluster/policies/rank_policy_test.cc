// SPDX-License-Identifier: Apache-2.0
// Policies that change powersgd's rank, over whole jobs: beside the paper's algorithms 1 and 2
// (arXiv 1905.13727) in fp64 at the ranks that were decided, whose Q loses its last columns when
// the rank falls and gains drawn ones when it rises. The reference shares no code with the codec
// but the random stream.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numbers>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "compress/format/philox.h"
#include "proto/base/key.h"
#include "tests/cluster/in_process_cluster.h"
#include "tests/cluster/policies/trained_job.h"
#include "tests/cluster/random_values.h"

namespace slimps {
namespace {

using ::testing::HasSubstr;

constexpr double kRate = 0.05;
constexpr int kChange = 20;  // the last round before the first two tensors change places
// Noise keeps within the budget from rank 3 on.
constexpr char kLgreco[] = "lgreco:codec=powersgd:rank=2,budget=0.8,every=8";
constexpr char kAtUniformsError[] = "lgreco:codec=powersgd:rank=2,every=8";
constexpr char kUniform[] = "uniform:codec=powersgd:rank=2";

// Three matrices, of which the last is too small for the policies; then a vector.
const std::vector<std::vector<int64_t>> kShapes = {{40, 3, 10}, {36, 24}, {6, 12}, {300}};

size_t RowsOf(size_t k) { return static_cast<size_t>(kShapes[k][0]); }
size_t ElementsOf(size_t k) {
  size_t elements = 1;
  for (const int64_t extent : kShapes[k]) elements *= static_cast<size_t>(extent);
  return elements;
}
size_t ColumnsOf(size_t k) { return ElementsOf(k) / RowsOf(k); }

// Returns the gradient of a tensor: noise. One of the first two matrices has little of it beside a
// matrix of rank 1, so that one column is enough.
std::vector<float> Gradient(size_t k, int round, uint32_t worker) {
  std::vector<float> values =
      Random(ElementsOf(k), static_cast<uint64_t>(1000 * round) + 10 * k + worker);
  if (k > 1 || (k == 0) != (round <= kChange)) return values;
  const std::vector<float> u = Random(RowsOf(k), 70 + k), v = Random(ColumnsOf(k), 80 + k);
  for (size_t i = 0; i < values.size(); ++i) {
    values[i] = 0.05f * values[i] + 0.1f * u[i / v.size()] * v[i % v.size()];
  }
  return values;
}

// ---- the reference ------------------------------------------------------------------------------

using Columns = std::vector<std::vector<double>>;  // a factor, column after column

double Dot(const std::vector<double>& a, const std::vector<double>& b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum;
}

void Orthogonalise(Columns* p) {
  for (size_t k = 0; k < p->size(); ++k) {
    std::vector<double>& column = (*p)[k];
    for (size_t before = 0; before < k; ++before) {
      const double part = Dot(column, (*p)[before]);
      for (size_t i = 0; i < column.size(); ++i) column[i] -= part * (*p)[before][i];
    }
    const double norm = std::sqrt(Dot(column, column));
    for (double& x : column) x /= norm;
  }
}

// One tensor of the reference: Q, and each worker's error.
class Reference {
 public:
  explicit Reference(size_t k)
      : key_("w" + std::to_string(k)),
        rows_(RowsOf(k)),
        columns_(ColumnsOf(k)),
        errors_(2, std::vector<double>(ElementsOf(k))) {}

  // Returns the sum of what the workers send at this rank.
  std::vector<double> Round(size_t rank, const std::vector<std::vector<float>>& gradients) {
    q_.resize(std::min(q_.size(), rank));
    for (size_t k = q_.size(); k < rank; ++k) q_.push_back(Drawn(k));
    Columns p(rank, std::vector<double>(rows_)), q(rank, std::vector<double>(columns_));
    for (size_t worker = 0; worker < 2; ++worker) {
      std::vector<double>& m = errors_[worker];
      for (size_t i = 0; i < m.size(); ++i) m[i] += double{gradients[worker][i]};
      for (size_t k = 0; k < rank; ++k) {
        for (size_t i = 0; i < m.size(); ++i) p[k][i / columns_] += m[i] * q_[k][i % columns_];
      }
    }
    Orthogonalise(&p);
    for (std::vector<double>& m : errors_) {
      Columns mine(rank, std::vector<double>(columns_));
      for (size_t k = 0; k < rank; ++k) {
        for (size_t i = 0; i < m.size(); ++i) mine[k][i % columns_] += m[i] * p[k][i / columns_];
        for (size_t j = 0; j < columns_; ++j) q[k][j] += mine[k][j];
      }
      AddProduct(p, mine, -1, &m);
    }
    q_ = q;
    std::vector<double> sum(rows_ * columns_);
    AddProduct(p, q, 1, &sum);
    return sum;
  }

 private:
  std::vector<double> Drawn(size_t k) const {
    const PhiloxStream stream = PhiloxStream::Of(0, key_.id(), 0, kAnyWorker, 0);
    std::vector<double> column;
    for (size_t j = 0; j < columns_; ++j) {
      const auto i = static_cast<uint32_t>(k * columns_ + j);
      const double a = (stream.Word(i / 2 * 2) + 1.0) / 4294967296.0;
      const double angle = 2 * std::numbers::pi * (stream.Word(i / 2 * 2 + 1) / 4294967296.0);
      column.push_back(std::sqrt(-2 * std::log(a)) *
                       (i % 2 == 0 ? std::cos(angle) : std::sin(angle)));
    }
    return column;
  }
  void AddProduct(const Columns& p, const Columns& q, double factor, std::vector<double>* m) const {
    for (size_t k = 0; k < p.size(); ++k) {
      for (size_t i = 0; i < m->size(); ++i) {
        (*m)[i] += factor * p[k][i / columns_] * q[k][i % columns_];
      }
    }
  }

  const Key key_;
  const size_t rows_, columns_;
  Columns q_;
  std::vector<std::vector<double>> errors_;
};

// ---- the jobs -----------------------------------------------------------------------------------

ClusterOptions Options(const std::string& policy) {
  ClusterOptions options{.workers = 2, .servers = 2};
  options.store.policy = policy;
  return options;
}

Outcome Train(const ClusterOptions& options, int from, int to, const Outcome* start = nullptr) {
  const TrainedJob job = {
      .options = options, .shapes = kShapes, .optimizer = Sgd(kRate), .gradient_of = Gradient};
  return job.Train(from, to, start);
}

// Returns the tensor's rank in a round; 0: it goes raw.
size_t RankIn(const std::vector<wire::CodecMap>& decisions, size_t k, int round) {
  const KeyId key = Key("w" + std::to_string(k)).id();
  size_t rank = 0;
  for (const wire::CodecMap& map : decisions) {
    if (map.from_round() > static_cast<uint64_t>(round)) break;
    rank = 0;
    for (const wire::CodecEntry& entry : map.entries()) {
      const size_t at = entry.codec().find("rank=");
      if (entry.key() == key && at != std::string::npos)
        rank = std::stoul(entry.codec().substr(at + 5));
    }
  }
  return rank;
}

std::vector<std::vector<float>> Expected(const std::vector<wire::CodecMap>& decisions, int to) {
  std::vector<std::vector<float>> weights;
  for (size_t k = 0; k < kShapes.size(); ++k) {
    const std::vector<float> first = Random(ElementsOf(k), 100 + k);
    std::vector<double> w(first.begin(), first.end());
    Reference reference(k);
    for (int round = 1; round <= to; ++round) {
      const std::vector<std::vector<float>> g = {Gradient(k, round, 0), Gradient(k, round, 1)};
      const size_t rank = RankIn(decisions, k, round);
      std::vector<double> sum(w.size());
      if (rank > 0) {
        sum = reference.Round(rank, g);
      } else {
        for (size_t i = 0; i < w.size(); ++i) sum[i] = double{g[0][i]} + double{g[1][i]};
      }
      for (size_t i = 0; i < w.size(); ++i) w[i] -= kRate * sum[i] / 2;
    }
    weights.emplace_back(w.begin(), w.end());
  }
  return weights;
}

void ExpectNear(const std::vector<std::vector<float>>& got,
                const std::vector<std::vector<float>>& expected) {
  ASSERT_EQ(got.size(), expected.size());
  for (size_t k = 0; k < got.size(); ++k) {
    for (size_t i = 0; i < got[k].size(); ++i) {
      ASSERT_NEAR(got[k][i], expected[k][i], 1e-3 * (1 + std::abs(expected[k][i])))
          << "tensor " << k << " element " << i;
    }
  }
}

TEST(RankPolicies, LgrecoChangesRanksAndTheExchangeFollowsThePaper) {
  const Outcome end = Train(Options(kLgreco), 1, 45);
  const std::vector<wire::CodecMap>& decisions = end.decisions.at(0);
  std::set<size_t> first, second;
  for (int round = 1; round <= 45; ++round) {
    first.insert(RankIn(decisions, 0, round));
    second.insert(RankIn(decisions, 1, round));
    EXPECT_EQ(RankIn(decisions, 3, round), 0u) << "a vector";
  }
  // Each falls and rises: from 2, to 1 while it is of rank 1, and up while it is noise.
  EXPECT_TRUE(first.contains(1) && *first.rbegin() > 2) << first.size();
  EXPECT_TRUE(second.contains(1) && *second.rbegin() > 2) << second.size();
  for (int round = 1; round <= 45; ++round) {
    for (size_t k = 0; k < 3; ++k) {
      EXPECT_EQ(RankIn(end.decisions.at(1), k, round), RankIn(decisions, k, round));
    }
  }
  ExpectNear(end.weights, Expected(decisions, 45));
}

TEST(RankPolicies, RaiseNoErrorAndSendFewerBytesThanUniform) {
  const Outcome end = Train(Options(kAtUniformsError), 1, kChange);
  for (size_t i = 1; i < end.decisions.at(0).size(); ++i) {
    EXPECT_THAT(end.decisions.at(0)[i].reason(), HasSubstr("times fewer"));
  }
  const Outcome uniform = Train(Options(kUniform), 1, kChange);
  EXPECT_EQ(uniform.decisions.at(0).size(), 1u);
  EXPECT_LT(end.totals.bytes_pushed, uniform.totals.bytes_pushed);
  ExpectNear(uniform.weights, Expected(uniform.decisions.at(0), kChange));
}

TEST(RankPolicies, AJobCutInTwoDecidesAsOneThatRanThrough) {
  const ClusterOptions options = Options(kLgreco);
  const Outcome whole = Train(options, 1, 45);
  // At the end of a window, before a decision holds, and in mid-window.
  for (const int cut : {24, 26, 30}) {
    SCOPED_TRACE(cut);
    const Outcome half = Train(options, 1, cut);
    const Outcome rest = Train(options, cut + 1, 45, &half);
    EXPECT_EQ(rest.weights, whole.weights);
    for (int round = cut + 1; round <= 45; ++round) {
      for (size_t k = 0; k < 3; ++k) {
        EXPECT_EQ(RankIn(rest.decisions.at(0), k, round - cut),
                  RankIn(whole.decisions.at(0), k, round));
      }
    }
  }
}

TEST(RankPolicies, AccordionAndItsMixtureChangeRanksToo) {
  for (const std::string policy :
       {"accordion:low=powersgd:rank=3,high=powersgd:rank=1,every=8",
        "lgreco_accordion:low=powersgd:rank=3,high=powersgd:rank=1,every=8"}) {
    SCOPED_TRACE(policy);
    const Outcome end = Train(Options(policy), 1, 45);
    const std::vector<wire::CodecMap>& decisions = end.decisions.at(0);
    EXPECT_GE(decisions.size(), 2u);
    EXPECT_NE(RankIn(decisions, 0, 1), RankIn(decisions, 0, 24));
    ExpectNear(end.weights, Expected(decisions, 45));
  }
}

TEST(RankPolicies, LostRepeatedAndDelayedMessagesChangeNothing) {
  ClusterOptions options = Options("accordion:low=powersgd:rank=3,high=powersgd:rank=1,every=8");
  const Outcome undisturbed = Train(options, 1, 24);
  options.worker_faults = {.seed = 11, .drop = 0.02, .duplicate = 0.1, .reorder = 0.1};
  options.store.retry_interval = absl::Milliseconds(20);
  EXPECT_EQ(Train(options, 1, 24).weights, undisturbed.weights);
}

TEST(RankPolicies, JointMayMixThemWithRawAndOtherCodecs) {
  // The error of rank 1 is small while a tensor is of rank 1; a raw round breaks no count.
  const Outcome end =
      Train(Options("joint:codecs=powersgd:rank=1|qsgd:bits=8;norm=max,budget=0.5,every=8"), 1, 40);
  EXPECT_GE(end.decisions.at(0).size(), 1u);
  for (const std::vector<float>& weights : end.weights) {
    for (const float w : weights) ASSERT_TRUE(std::isfinite(w));
  }
}

TEST(RankPolicies, TheirKeysAreMadeAtInit) {
  InProcessCluster(Options("threshold")).RunWorkers([](KVStore& store) {
    auto [weights, tensors] = RandomTensors({300});
    ASSERT_STATUS_OK(store.Init(tensors));
    const absl::Status refused = store.SetPolicy(kLgreco);
    EXPECT_TRUE(absl::IsFailedPrecondition(refused)) << refused;
    EXPECT_THAT(std::string(refused.message()), HasSubstr("set the policy before Init"));
  });
  KVStoreOptions options = Options(kLgreco).store;
  options.scheduler_address = "tcp://127.0.0.1:1";
  options.pull_compression = "policy";
  const absl::Status refused = KVStore::Create("dist_sync", options).status();
  EXPECT_TRUE(absl::IsInvalidArgument(refused)) << refused;
  EXPECT_THAT(std::string(refused.message()), HasSubstr("give pull_compression=none"));
}

}  // namespace
}  // namespace slimps
