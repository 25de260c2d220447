// SPDX-License-Identifier: Apache-2.0
// What a codec of several phases cannot do is refused in words.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "tests/cluster/in_process_cluster.h"

namespace slimps {
namespace {

using ::testing::HasSubstr;

const std::vector<float> kWeights(24 * 20, 1.0f);
const std::vector<InitTensor> kTensors = {{.key = "w", .shape = {24, 20}, .value = kWeights}};

ClusterOptions Options() {
  ClusterOptions options{.workers = 2, .servers = 2};
  options.store.compression = "powersgd:rank=2";
  options.store.fixed_threshold_bytes = 0;
  return options;
}

std::string WordsOf(const absl::Status& status) { return std::string(status.message()); }

TEST(CodecOfPhases, IsChosenBeforeInitAndTakesNoRows) {
  InProcessCluster(Options()).RunWorkers([&](KVStore& store) {
    ASSERT_STATUS_OK(store.Init(kTensors));
    const std::vector<int64_t> rows = {0};
    EXPECT_THAT(WordsOf(store.PushRowSparse("w", rows, std::vector<float>(20), 0)),
                HasSubstr("expected gradient compression none, got powersgd:rank=2"));
    for (const char* codec : {"powersgd:rank=1", "1bit"}) {
      EXPECT_THAT(WordsOf(store.SetGradientCompression(codec)),
                  HasSubstr("codec powersgd: the keys of its phases go with the tensors' own, at "
                            "Init; set gradient compression before Init"));
    }
  });
}

TEST(CodecOfPhases, WorkersMustGoByTheSameThreshold) {
  ClusterOptions options = Options();
  options.store.fixed_threshold_bytes = 4096;
  InProcessCluster(options).RunWorkers([&](KVStore& store) {
    if (store.rank() == 1) {
      ASSERT_STATUS_OK(store.ChangeCompression("powersgd:rank=2", CompressedKeys::kAll));
    }
    const std::string words = WordsOf(store.Init(kTensors));
    EXPECT_THAT(words, HasSubstr("expected the same compression on all workers"));
    EXPECT_THAT(words, HasSubstr("powersgd:rank=2 from 4096 bytes"));
    EXPECT_THAT(words, HasSubstr("powersgd:rank=2 from 0 bytes"));
  });
}

TEST(CodecOfPhases, ARankThatNoMatrixTakesIsRefusedWithTheLargestOfThem) {
  ClusterOptions options = Options();
  options.store.compression = "powersgd:rank=30";
  InProcessCluster(options).RunWorkers([&](KVStore& store) {
    ASSERT_STATUS_OK(store.Init(kTensors));
    EXPECT_THAT(WordsOf(store.Push("w", kWeights, 0)),
                HasSubstr("codec powersgd:rank=30 takes no tensor: even for the largest matrix, "
                          "key s:w with 24 rows of 20"));
  });
}

TEST(CodecOfPhases, AnOptionThatDoesNotGoWithItIsRefusedAtTheStart) {
  const auto words = [](const std::function<void(ClusterOptions*)>& edit) {
    ClusterOptions options = Options();
    edit(&options);
    auto transport = std::make_unique<InProcessTransport>(std::make_shared<InProcessNetwork>(),
                                                          TransportOptions());
    return WordsOf(DistStore::Create(options.mode, options.store, std::move(transport)).status());
  };
  EXPECT_THAT(words([](auto* options) { options->mode = wire::DIST_ASYNC; }),
              HasSubstr("codec powersgd with dist_async: expected dist_sync"));
  EXPECT_THAT(words([](auto* options) { options->store.pull_compression = "powersgd"; }),
              HasSubstr("pull compression powersgd: expected a codec without phases"));
  EXPECT_THAT(words([](auto* options) { options->store.fixed_threshold_bytes.reset(); }),
              HasSubstr("expected a threshold in bytes, 0 for every tensor that it takes"));
}

}  // namespace
}  // namespace slimps
