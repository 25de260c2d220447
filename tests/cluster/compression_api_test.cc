// SPDX-License-Identifier: Apache-2.0
// Setting compression through the store: what it refuses, dictionaries, totals.
#include <gtest/gtest.h>

#include "tests/cluster/in_process_cluster.h"

namespace slimps {
namespace {

wire::OptimizerSpec Sgd(double momentum = 0) {
  wire::OptimizerSpec spec;
  spec.set_kind(wire::OptimizerSpec::SGD);
  spec.set_learning_rate(1);
  spec.set_momentum(momentum);
  return spec;
}

TEST(Refusals, AVoteNeedsRoundsInEveryWayToAskForIt) {
  ClusterOptions options{.workers = 1, .servers = 1, .mode = wire::DIST_ASYNC};
  InProcessCluster(options).RunWorkers([](KVStore& store) {
    const absl::Status refused = store.SetGradientCompression("signsgd");
    EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_NE(refused.message().find("majority"), absl::string_view::npos) << refused;
    EXPECT_EQ(store.SetOptimizer({}).code(), absl::StatusCode::kInvalidArgument);
    EXPECT_TRUE(store.SetGradientCompression("1bit").ok());
  });
}

TEST(Refusals, DgcAndTheServersMomentumInEitherOrder) {
  ClusterOptions options{.workers = 1, .servers = 1};
  InProcessCluster(options).RunWorkers([](KVStore& store) {
    ASSERT_STATUS_OK(store.SetGradientCompression("dgc"));
    EXPECT_EQ(store.SetOptimizer(Sgd(0.9)).code(), absl::StatusCode::kInvalidArgument);
    ASSERT_STATUS_OK(store.SetOptimizer(Sgd()));
    ASSERT_STATUS_OK(store.SetGradientCompression("topk"));
    ASSERT_STATUS_OK(store.SetOptimizer(Sgd(0.9)));
    EXPECT_EQ(store.SetGradientCompression("dgc").code(), absl::StatusCode::kInvalidArgument);
  });
}

TEST(Refusals, HowServersJoinGradientsIsFixedByInit) {
  ClusterOptions options{.workers = 1, .servers = 1};
  InProcessCluster(options).RunWorkers([](KVStore& store) {
    std::vector<float> w(4);
    ASSERT_STATUS_OK(store.SetGradientCompression("signsgd"));
    ASSERT_STATUS_OK(store.Init({{.key = "w", .shape = {4}, .value = w}}));
    EXPECT_EQ(store.SetGradientCompression("1bit").code(), absl::StatusCode::kFailedPrecondition);
    const std::vector<float> gradient = {3, -0.5f, 0, -7};
    ASSERT_STATUS_OK(store.SetGradientCompression("signsgd"));
    ASSERT_STATUS_OK(store.PushPull("w", gradient, w, 0));
    for (const size_t i : {0, 1, 3}) EXPECT_EQ(w[i], gradient[i] > 0 ? 1 : -1);
  });
}

TEST(Dictionaries, MxnetsCompressesEveryKeyWithoutATable) {
  ClusterOptions options{.workers = 1, .servers = 1};  // automatic threshold
  InProcessCluster(options).RunWorkers([](KVStore& store) {
    EXPECT_EQ(store.SetGradientCompression({{"type", "2bits"}}).code(),
              absl::StatusCode::kInvalidArgument);
    ASSERT_STATUS_OK(store.SetGradientCompression({{"type", "2bit"}, {"threshold", "1"}}));
    EXPECT_FALSE(store.measuring());
    std::vector<float> w(4);
    ASSERT_STATUS_OK(store.Init({{.key = "w", .shape = {4}, .value = w}}));
    ASSERT_STATUS_OK(store.PushPull("w", std::vector<float>{3, -0.5f, 0.75f, -1}, w, 0));
    EXPECT_EQ(w, (std::vector<float>{1, 0, 0, -1}));
    ASSERT_STATUS_OK(store.PushPull("w", std::vector<float>{0, -0.5f, 0, 0}, w, 0));
    EXPECT_EQ(w, (std::vector<float>{1, -1, 0, 0}));
  });
}

TEST(Totals, SumWhatEncodingsSayOfThemselves) {
  ClusterOptions options{.workers = 1, .servers = 1};
  options.store.compression = "topk:k=2";
  options.store.fixed_threshold_bytes = 20;
  InProcessCluster(options).RunWorkers([](KVStore& store) {
    std::vector<float> w(8), raw(2);
    ASSERT_STATUS_OK(store.Init(
        {{.key = "w", .shape = {8}, .value = w}, {.key = "raw", .shape = {2}, .value = raw}}));
    ASSERT_STATUS_OK(store.Push("w", std::vector<float>{1, 0, 3, 0, 0, -4, 0, 2}, 0));
    ASSERT_STATUS_OK(store.Push("raw", std::vector<float>{5, 6}, 0));
    ASSERT_STATUS_OK(store.Wait());
    const StoreTotals totals = store.totals();
    EXPECT_EQ(totals.pushed.elements, 10u);
    EXPECT_EQ(totals.pushed.elements_sent, 2u + 2u);
    EXPECT_EQ(totals.pushed.payload_bytes, totals.bytes_pushed);
    EXPECT_DOUBLE_EQ(totals.pushed.input_norm2, 1 + 9 + 16 + 4);
    EXPECT_DOUBLE_EQ(totals.pushed.decoded_norm2, 9 + 16);
    EXPECT_DOUBLE_EQ(totals.pushed.error_norm2, 1 + 4);
    EXPECT_EQ(store.push_counts("w").elements, 8u);
    EXPECT_EQ(store.push_counts("w").elements_sent, 2u);
    EXPECT_DOUBLE_EQ(store.push_counts("w").error_norm2, 1 + 4);
    EXPECT_EQ(store.push_counts("raw").payload_bytes, 8u);
    EXPECT_DOUBLE_EQ(store.push_counts("raw").CompressionGain(), 1);
    EXPECT_EQ(store.push_counts("never").elements, 0u);
  });
}

}  // namespace
}  // namespace slimps
