// SPDX-License-Identifier: Apache-2.0
// Row-sparse pushes and pulls over a whole cluster, against a plain model that every worker
// computes itself.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/cluster/in_process_cluster.h"
#include "tests/cluster/random_values.h"

namespace slimps {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

wire::OptimizerSpec SpecOf(wire::OptimizerSpec::Kind kind) {
  wire::OptimizerSpec spec;
  spec.set_kind(kind);
  spec.set_learning_rate(0.25);
  spec.set_momentum(kind == wire::OptimizerSpec::SGD ? 0.5 : 0);
  spec.set_weight_decay(kind == wire::OptimizerSpec::SGD ? 0.125 : 0);
  spec.set_rescale_grad(0.5);
  return spec;
}

// What one worker pushes for one key in one round.
struct Contribution {
  enum Kind { kDense, kRows, kNothing } kind = kNothing;
  std::vector<float> dense;
  std::vector<int64_t> rows;  // unsorted, repeated
  std::vector<float> values;
};

struct Shape {
  std::vector<int64_t> extents;
  size_t rows() const { return static_cast<size_t>(extents[0]); }
  size_t row_elements() const {
    return static_cast<size_t>(
        std::accumulate(extents.begin() + 1, extents.end(), int64_t{1}, std::multiplies<>()));
  }
  size_t elements() const { return rows() * row_elements(); }
};

// Returns small whole numbers, whose sums are exact in any order.
std::vector<float> WholeNumbers(size_t count, std::mt19937_64& random) {
  std::vector<float> values(count);
  for (float& value : values) value = static_cast<float>(random() % 17) - 8;
  return values;
}

// Draws a worker's contribution to a round. In a third of the rounds all workers push rows.
Contribution Draw(const Shape& shape, int round, uint32_t worker, uint64_t seed) {
  std::mt19937_64 random(seed * 1000003 + static_cast<uint64_t>(round) * 1009 + worker);
  Contribution drawn;
  const uint64_t choice = round % 3 == 0 ? 5 : random() % 10;
  drawn.kind = choice < 3   ? Contribution::kDense
               : choice < 9 ? Contribution::kRows
                            : Contribution::kNothing;
  if (drawn.kind == Contribution::kDense) drawn.dense = WholeNumbers(shape.elements(), random);
  if (drawn.kind != Contribution::kRows) return drawn;
  const size_t count = random() % 4 == 0 ? 0 : random() % (shape.rows() + 3);
  for (size_t i = 0; i < count; ++i) {
    drawn.rows.push_back(static_cast<int64_t>(random() % shape.rows()));
  }
  drawn.values = WholeNumbers(count * shape.row_elements(), random);
  return drawn;
}

// The plain definition for one key: a sum, the rows that it names, a step of these rows.
class Model {
 public:
  Model(const Shape& shape, const wire::OptimizerSpec& spec, std::vector<float> value)
      : shape_(shape), spec_(spec), value_(std::move(value)), momentum_(value_.size(), 0.0f) {}

  void Apply(const std::vector<Contribution>& round) {
    std::vector<float> sum(value_.size(), 0.0f);
    std::vector<bool> named(shape_.rows(), false);
    bool any_dense = false;
    for (const Contribution& one : round) {
      any_dense |= one.kind == Contribution::kDense;
      for (size_t i = 0; i < one.dense.size(); ++i) sum[i] += one.dense[i];
      for (size_t i = 0; i < one.values.size(); ++i) {
        const auto row = static_cast<size_t>(one.rows[i / shape_.row_elements()]);
        named[row] = true;
        sum[row * shape_.row_elements() + i % shape_.row_elements()] += one.values[i];
      }
    }
    for (size_t i = 0; i < value_.size(); ++i) {
      const bool stepped = any_dense || named[i / shape_.row_elements()];
      if (stepped || spec_.kind() == wire::OptimizerSpec::NONE) Step(i, sum[i]);
    }
  }
  const std::vector<float>& value() const { return value_; }

 private:
  void Step(size_t i, float sum) {
    const float g = static_cast<float>(spec_.rescale_grad()) * sum;
    if (spec_.kind() == wire::OptimizerSpec::NONE) {
      value_[i] = sum;
    } else if (spec_.kind() == wire::OptimizerSpec::TEST) {
      value_[i] += g;
    } else {
      const float decayed = g + static_cast<float>(spec_.weight_decay()) * value_[i];
      momentum_[i] = static_cast<float>(spec_.momentum()) * momentum_[i] + decayed;
      value_[i] -= static_cast<float>(spec_.learning_rate()) * momentum_[i];
    }
  }

  const Shape shape_;
  const wire::OptimizerSpec spec_;
  std::vector<float> value_, momentum_;
};

absl::Status PushTo(KVStore& store, const Key& key, const Contribution& mine) {
  switch (mine.kind) {
    case Contribution::kDense:
      return store.Push(key, mine.dense, 0);
    case Contribution::kRows:
      return store.PushRowSparse(key, mine.rows, mine.values, 0);
    default:
      return store.PushNothing(key);
  }
}

// Pulls either the whole tensor or some rows, and compares them with the model.
void ExpectModel(KVStore& store, const Key& key, const Shape& shape, const Model& model,
                 std::mt19937_64& random) {
  if (random() % 2 == 0) {
    std::vector<float> out(shape.elements());
    ASSERT_STATUS_OK(store.Pull(key, out, 0));
    ASSERT_EQ(out, model.value());
    return;
  }
  std::vector<int64_t> ids, rows;
  std::vector<float> values, expected;
  for (size_t i = random() % (2 * shape.rows()); i > 0; --i) {
    ids.push_back(static_cast<int64_t>(random() % shape.rows()));
  }
  ASSERT_STATUS_OK(store.PullRows(key, ids, &rows, &values, 0));
  std::ranges::sort(ids);
  ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
  ASSERT_EQ(rows, ids);
  for (const int64_t row : rows) {
    const auto begin = model.value().begin() + row * static_cast<int64_t>(shape.row_elements());
    expected.insert(expected.end(), begin, begin + static_cast<int64_t>(shape.row_elements()));
  }
  ASSERT_EQ(values, expected);
}

void CompareWithModel(ClusterOptions options, const wire::OptimizerSpec& spec, int rounds) {
  const std::vector<Shape> shapes = {{{40}}, {{17, 3}}, {{5, 2, 30}}, {{1, 64}}};
  const uint32_t workers = options.workers;
  InProcessCluster cluster(std::move(options));
  cluster.RunWorkers([&](KVStore& store) {
    std::vector<Model> models;
    for (size_t k = 0; k < shapes.size(); ++k) {
      std::mt19937_64 random(k);
      models.emplace_back(shapes[k], spec, WholeNumbers(shapes[k].elements(), random));
      ASSERT_STATUS_OK(store.Init({{.key = static_cast<int64_t>(k),
                                    .shape = shapes[k].extents,
                                    .value = models[k].value()}}));
    }
    if (spec.kind() != wire::OptimizerSpec::NONE) ASSERT_STATUS_OK(store.SetOptimizer(spec));
    ASSERT_STATUS_OK(store.Barrier());
    std::mt19937_64 random(store.rank());  // each worker pulls in its own way
    for (int round = 1; round <= rounds; ++round) {
      for (size_t k = 0; k < shapes.size(); ++k) {
        std::vector<Contribution> all;
        for (uint32_t worker = 0; worker < workers; ++worker) {
          all.push_back(Draw(shapes[k], round, worker, k));
        }
        ASSERT_STATUS_OK(PushTo(store, static_cast<int64_t>(k), all[store.rank()]));
        models[k].Apply(all);
      }
      for (size_t k = 0; k < shapes.size(); ++k) {
        SCOPED_TRACE(absl::StrCat("round ", round, " key ", k, " worker ", store.rank()));
        ExpectModel(store, static_cast<int64_t>(k), shapes[k], models[k], random);
        if (::testing::Test::HasFatalFailure()) return;
      }
    }
  });
}

TEST(RowSparse, RandomSequencesEqualThePlainModelForAnyOptimizerAndCut) {
  for (const auto kind :
       {wire::OptimizerSpec::NONE, wire::OptimizerSpec::TEST, wire::OptimizerSpec::SGD}) {
    for (const size_t partition_bytes : {size_t{4} << 20, size_t{28}, size_t{200}}) {
      ClusterOptions options{.workers = 2, .servers = 2};
      options.store.partition_bytes = partition_bytes;
      CompareWithModel(options, SpecOf(kind), /*rounds=*/30);
    }
  }
}

TEST(RowSparse, LostRepeatedAndReorderedMessagesCountOnce) {
  ClusterOptions options{.workers = 3, .servers = 2, .shard_threads = 2};
  options.store.partition_bytes = 100;
  options.store.retry_interval = absl::Milliseconds(50);
  options.worker_faults = {.seed = 9, .drop = 0.05, .duplicate = 0.05, .reorder = 0.2};
  CompareWithModel(options, SpecOf(wire::OptimizerSpec::TEST), /*rounds=*/15);
}

TEST(RowSparse, UnderDistAsyncEveryPushStepsItsRowsOnce) {
  ClusterOptions options{.workers = 2, .servers = 2, .mode = wire::DIST_ASYNC};
  options.store.partition_bytes = 28;
  InProcessCluster cluster(options);
  cluster.RunWorkers([](KVStore& store) {
    const Shape shape{{11, 4}};
    const wire::OptimizerSpec spec = SpecOf(wire::OptimizerSpec::TEST);
    Model model(shape, spec, std::vector<float>(44, 1.0f));
    ASSERT_STATUS_OK(store.SetOptimizer(spec));
    ASSERT_STATUS_OK(store.Barrier());
    ASSERT_STATUS_OK(store.Init({{.key = "w", .shape = {11, 4}, .value = model.value()}}));
    for (int round = 1; round <= 20; ++round) {
      for (uint32_t worker = 0; worker < 2; ++worker) {
        Contribution drawn = Draw(shape, 3 * round, worker, 7);
        if (worker == store.rank()) ASSERT_STATUS_OK(PushTo(store, "w", drawn));
        model.Apply({drawn});
      }
    }
    ASSERT_STATUS_OK(store.Wait());
    ASSERT_STATUS_OK(store.Barrier());
    std::vector<int64_t> rows;
    std::vector<float> values;
    ASSERT_STATUS_OK(store.PullRows("w", std::vector<int64_t>{10, 3}, &rows, &values, 0));
    EXPECT_THAT(rows, ElementsAre(3, 10));
    const auto& all = model.value();
    EXPECT_EQ(values, (std::vector<float>{all[12], all[13], all[14], all[15], all[40], all[41],
                                          all[42], all[43]}));
    std::vector<float> out(44);
    ASSERT_STATUS_OK(store.Pull("w", out, 0));
    EXPECT_EQ(out, all);
  });
}

TEST(RowSparse, AdamStepsRowsAsItStepsDenseAndKeepsOthersMoments) {
  wire::OptimizerSpec adam;
  adam.set_kind(wire::OptimizerSpec::ADAM);
  adam.set_learning_rate(0.1);
  adam.set_beta1(0.9);
  adam.set_beta2(0.999);
  adam.set_epsilon(1e-8);
  InProcessCluster cluster({.workers = 2, .servers = 1});
  cluster.RunWorkers([&](KVStore& store) {
    const std::vector<float> zeros(8, 0.0f), g = Random(8, 5 + store.rank());
    ASSERT_STATUS_OK(store.Init({{.key = "dense", .shape = {4, 2}, .value = zeros},
                                 {.key = "rows", .shape = {4, 2}, .value = zeros}}));
    ASSERT_STATUS_OK(store.SetOptimizer(adam));
    ASSERT_STATUS_OK(store.Barrier());
    std::vector<float> dense(8), rows(8), before(8);
    const std::vector<int64_t> all = {0, 1, 2, 3}, some = {2};
    ASSERT_STATUS_OK(store.PushPull("dense", g, dense, 0));
    ASSERT_STATUS_OK(store.PushRowSparse("rows", all, g, 0));
    ASSERT_STATUS_OK(store.Pull("rows", before, 0));
    EXPECT_EQ(before, dense);
    // Row 2 goes on. The other rows neither move nor lose their moments.
    ASSERT_STATUS_OK(store.PushRowSparse("rows", some, std::span(g).subspan(4, 2), 0));
    ASSERT_STATUS_OK(store.Pull("rows", rows, 0));
    ASSERT_STATUS_OK(store.PushPull("dense", g, dense, 0));
    for (size_t i = 0; i < 8; ++i) EXPECT_EQ(rows[i], i / 2 == 2 ? dense[i] : before[i]) << i;
  });
}

TEST(RowSparse, MoreRowsThanOneRequestNamesArePulledWhole) {
  ClusterOptions options{.workers = 1, .servers = 2};
  options.store.partition_bytes = 100000;
  InProcessCluster cluster(options);
  cluster.RunWorkers([](KVStore& store) {
    const std::vector<float> value = Random(30000 * 3, 1);
    ASSERT_STATUS_OK(store.Init({{.key = "w", .shape = {30000, 3}, .value = value}}));
    std::vector<int64_t> ids(30000), rows;
    std::iota(ids.rbegin(), ids.rend(), 0);
    std::vector<float> values;
    ASSERT_STATUS_OK(store.PullRows("w", ids, &rows, &values, 0));
    std::ranges::reverse(ids);
    EXPECT_EQ(rows, ids);
    EXPECT_EQ(values, value);
    EXPECT_EQ(store.totals().bytes_pulled, value.size() * sizeof(float));
  });
}

TEST(RowSparse, GradScaleIsUndoneByRescaleGradAsForDensePushes) {
  ClusterOptions options{.workers = 1, .servers = 1};
  options.store.grad_scale = 4;
  InProcessCluster cluster(options);
  cluster.RunWorkers([](KVStore& store) {
    wire::OptimizerSpec spec = SpecOf(wire::OptimizerSpec::TEST);
    spec.set_rescale_grad(0.25);
    ASSERT_STATUS_OK(store.Init({{.key = 1, .shape = {2}, .value = std::vector<float>{1, 1}}}));
    ASSERT_STATUS_OK(store.SetOptimizer(spec));
    ASSERT_STATUS_OK(store.PushRowSparse(1, std::vector<int64_t>{1}, std::vector<float>{3}, 0));
    std::vector<float> out(2);
    ASSERT_STATUS_OK(store.Pull(1, out, 0));
    EXPECT_THAT(out, ElementsAre(1, 4));
  });
}

TEST(RowSparse, RowsAreWhatDensePullsShowWherePullsAreCompressed) {
  for (const char* codec : {"fp16", "1bit"}) {
    ClusterOptions options{.workers = 2, .servers = 2};
    options.store.partition_bytes = 1000;
    options.store.pull_compression = codec;
    options.store.fixed_pull_threshold_bytes = 0;
    InProcessCluster cluster(options);
    cluster.RunWorkers([&](KVStore& store) {
      const std::vector<float> zeros(500, 0.0f);
      ASSERT_STATUS_OK(store.Init({{.key = "w", .shape = {100, 5}, .value = zeros}}));
      ASSERT_STATUS_OK(store.SetOptimizer(Sgd(0.1)));
      ASSERT_STATUS_OK(store.Barrier());
      std::vector<int64_t> all(100), rows;
      std::iota(all.begin(), all.end(), 0);
      std::vector<float> values, out(500);
      for (uint64_t round = 1; round <= 4; ++round) {
        const std::vector<int64_t> mine = {static_cast<int64_t>(round), 50, 99};
        ASSERT_STATUS_OK(store.PushRowSparse("w", mine, Random(15, round + store.rank()), 0));
        ASSERT_STATUS_OK(store.Pull("w", out, 0));
        ASSERT_STATUS_OK(store.PullRows("w", all, &rows, &values, 0));
        EXPECT_EQ(values, out) << codec << " round " << round;
      }
    });
  }
}

// ---- what is refused ----------------------------------------------------------------------------

std::string Refusal(const absl::Status& status, absl::StatusCode code) {
  EXPECT_EQ(status.code(), code) << status;
  return std::string(status.message());
}

TEST(RowSparse, APushThatIsRefusedConsumesNoRound) {
  InProcessCluster cluster({.workers = 2, .servers = 1});
  cluster.RunWorkers([](KVStore& store) {
    ASSERT_STATUS_OK(
        store.Init({{.key = "w", .shape = {4, 2}, .value = std::vector<float>(8, 1.0f)}}));
    const auto refusal = [&](std::vector<int64_t> rows, std::vector<float> values) {
      return Refusal(store.PushRowSparse("w", rows, values, 0), absl::StatusCode::kInvalidArgument);
    };
    EXPECT_THAT(refusal({4}, {1, 2}), HasSubstr("key s:w: expected rows 0 to below 4, got row 4"));
    EXPECT_THAT(refusal({1}, {1, std::nanf("")}), HasSubstr("key s:w: element 1 of row 1 is nan"));
    EXPECT_THAT(refusal({1}, {1, 2, 3}), HasSubstr("expected 2 values for each of 1 rows, got 3"));
    EXPECT_THAT(Refusal(store.PushRowSparse("x", {}, {}, 0), absl::StatusCode::kNotFound),
                HasSubstr("s:x"));
    ASSERT_STATUS_OK(
        store.PushRowSparse("w", std::vector<int64_t>{3}, std::vector<float>{1, 2}, 0));
    std::vector<float> out(8);
    ASSERT_STATUS_OK(store.Pull("w", out, 0));
    EXPECT_THAT(out, ElementsAre(0, 0, 0, 0, 0, 0, 2, 4));
  });
}

TEST(RowSparse, APullThatIsRefusedLeavesItsOutputsAlone) {
  InProcessCluster cluster({.workers = 1, .servers = 1});
  cluster.RunWorkers([](KVStore& store) {
    ASSERT_STATUS_OK(
        store.Init({{.key = "w", .shape = {4, 2}, .value = std::vector<float>(8, 1.0f)}}));
    std::vector<int64_t> rows = {77};
    std::vector<float> values = {7};
    EXPECT_THAT(Refusal(store.PullRows("w", std::vector<int64_t>{0, -1}, &rows, &values, 0),
                        absl::StatusCode::kInvalidArgument),
                HasSubstr("pull of rows of key s:w: expected rows 0 to below 4, got row -1"));
    Refusal(store.PullRows("x", {}, &rows, &values, 0), absl::StatusCode::kNotFound);
    EXPECT_THAT(rows, ElementsAre(77));
    EXPECT_THAT(values, ElementsAre(7));
    ASSERT_STATUS_OK(store.PullRows("w", {}, &rows, &values, 0));
    EXPECT_THAT(rows, IsEmpty());
    EXPECT_THAT(values, IsEmpty());
  });
}

TEST(RowSparse, PushesAreRefusedWhileGradientCompressionIsOn) {
  for (const char* codec : {"1bit", "fp16"}) {
    ClusterOptions options{.workers = 1, .servers = 1};
    options.store.compression = codec;
    options.store.fixed_threshold_bytes = 1 << 20;  // also for a key below it
    InProcessCluster cluster(options);
    cluster.RunWorkers([&](KVStore& store) {
      ASSERT_STATUS_OK(store.Init({{.key = "w", .shape = {2}, .value = std::vector<float>(2)}}));
      EXPECT_THAT(
          Refusal(store.PushRowSparse("w", {}, {}, 0), absl::StatusCode::kFailedPrecondition),
          HasSubstr(absl::StrCat("key s:w: expected gradient compression none, got ", codec)));
      ASSERT_STATUS_OK(store.SetGradientCompression("none"));
      ASSERT_STATUS_OK(store.PushRowSparse("w", {}, {}, 0));
      std::vector<float> out(2);
      ASSERT_STATUS_OK(store.Pull("w", out, 0));
    });
  }
}

}  // namespace
}  // namespace slimps
