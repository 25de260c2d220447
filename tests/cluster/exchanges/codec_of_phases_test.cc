// SPDX-License-Identifier: Apache-2.0
// What a codec of several phases cannot do is refused in words.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <future>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/strings/match.h"
#include "proto/base/key.h"
#include "proto/base/mutex.h"
#include "tests/cluster/hooked_transport.h"
#include "tests/cluster/in_process_cluster.h"
#include "tests/cluster/random_values.h"

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
    // Nothing was counted. With a tensor that it takes, the same push goes out.
    const std::vector<float> large(200 * 100);
    ASSERT_STATUS_OK(store.Init({{.key = "large", .shape = {200, 100}, .value = large}}));
    ASSERT_STATUS_OK(store.Push("w", kWeights, 0));
    ASSERT_STATUS_OK(store.Push("large", large, 0));
    ASSERT_STATUS_OK(store.Wait());
  });
}

TEST(CodecOfPhases, APolicysRankThatNoMatrixTakesIsRefusedTheSameWay) {
  ClusterOptions options{.workers = 2, .servers = 2};
  options.store.policy = "joint:budget=0.1,codecs=powersgd:rank=30";
  InProcessCluster(options).RunWorkers([&](KVStore& store) {
    ASSERT_STATUS_OK(store.Init(kTensors));
    EXPECT_THAT(
        WordsOf(store.Push("w", kWeights, 0)),
        HasSubstr("policy joint:budget=0.1,codecs=powersgd:rank=30 takes no tensor: even for the "
                  "largest matrix, key s:w with 24 rows of 20"));
  });
}

// What powersgd held back goes out with the next push, whatever its codec. Its warm start suits
// powersgd of the same rank alone.
TEST(CodecOfPhases, ItsResidualsGoOnInAnyOtherCodec) {
  const std::vector<float> nothing(kWeights.size());
  std::map<uint32_t, std::string> saved;
  Mutex mutex;
  std::vector<float> sent(kWeights.size());
  const auto gradient = [](uint32_t rank) { return Random(kWeights.size(), rank); };
  InProcessCluster(Options()).RunWorkers([&](KVStore& store) {
    ASSERT_STATUS_OK(store.Init(kTensors));
    ASSERT_STATUS_OK(store.Push("w", gradient(store.rank()), 0));
    std::vector<float> sum(kWeights.size());
    ASSERT_STATUS_OK(store.Pull("w", sum, 0));
    const auto residuals = store.SaveResiduals();
    ASSERT_STATUS_OK(residuals.status());
    const MutexLock lock(&mutex);
    saved[store.rank()] = *residuals;
    sent = sum;
  });
  for (const char* codec : {"none", "powersgd:rank=3", "1bit"}) {
    ClusterOptions options = Options();
    options.store.compression = codec;
    InProcessCluster(options).RunWorkers([&](KVStore& store) {
      ASSERT_STATUS_OK(store.Init(kTensors));
      ASSERT_STATUS_OK(store.LoadResiduals(saved.at(store.rank())));
      ASSERT_STATUS_OK(store.Push("w", nothing, 0));
      std::vector<float> sum(kWeights.size());
      ASSERT_STATUS_OK(store.Pull("w", sum, 0));
      if (std::string_view(codec) != "none") return;
      const std::vector<float> first = gradient(0), second = gradient(1);
      for (size_t i = 0; i < sum.size(); ++i) {
        ASSERT_NEAR(sent[i] + sum[i], first[i] + second[i], 1e-5) << i;
      }
    });
  }
}

// Returns true if the message pushes this key.
bool Pushes(const Message& message, KeyId key) {
  const auto is_it = [key](const wire::PushItem& item) { return item.id().key() == key; };
  return std::ranges::any_of(message.header.push().items(), is_it) ||
         std::ranges::any_of(message.header.push_pull().push(), is_it);
}

// Worker 1 stops in mid-round: its push of `key` leaves only on `release`.
ClusterOptions StaysAwayBefore(const std::string& codec, const Key& key,
                               const std::shared_future<void>& release) {
  ClusterOptions options = Options();
  options.store.compression = codec;
  // Worker 0 gives up first.
  options.edit_store = [](uint32_t worker, KVStoreOptions* store) {
    store->timeout = absl::Seconds(worker == 0 ? 6 : 60);
  };
  const auto stay_away = [key, release](const Message& message) {
    if (Pushes(message, key.id())) release.wait();
    return absl::OkStatus();
  };
  options.wrap = Hooked({nullptr, stay_away});
  return options;
}

TEST(CodecOfPhases, AWorkerThatStaysAwayInAPhaseIsNamedAndEndsTheJob) {
  std::promise<void> told;
  ClusterOptions options =
      StaysAwayBefore("powersgd:rank=2", Key::Auxiliary("q", "w"), told.get_future().share());
  options.job_fails = true;
  InProcessCluster(options).RunWorkers([&](KVStore& store) {
    ASSERT_STATUS_OK(store.Init(kTensors));
    ASSERT_STATUS_OK(store.Push("w", kWeights, 0));
    absl::Status status = store.Wait();
    if (store.rank() == 1) {
      EXPECT_FALSE(store.Barrier().ok());  // until it hears that the job has failed
      return;
    }
    // Wait may give up first, and has no name to tell.
    for (int i = 0; i < 20 && !absl::StrContains(WordsOf(status), "lacks"); ++i) {
      status = store.Wait();
    }
    EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded) << status;
    EXPECT_THAT(WordsOf(status), HasSubstr("key #q:s:w"));
    EXPECT_THAT(WordsOf(status), HasSubstr("lacks the push of worker 1"));
    told.set_value();
  });
}

TEST(CodecOfPhases, AWorkerThatStaysAwayAfterItsPhasesIsNamedAndMayComeLater) {
  std::promise<void> told;
  const std::shared_future<void> release = told.get_future().share();
  InProcessCluster(StaysAwayBefore("thc", "w", release)).RunWorkers([&](KVStore& store) {
    ASSERT_STATUS_OK(store.Init(kTensors));
    ASSERT_STATUS_OK(store.Push("w", kWeights, 0));
    std::vector<float> sum(kWeights.size());
    if (store.rank() == 0) {
      const absl::Status status = store.Pull("w", sum, 0);
      EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded) << status;
      EXPECT_THAT(WordsOf(status), HasSubstr("lacks the push of worker 1"));
      told.set_value();
    }
    release.wait();
    ASSERT_STATUS_OK(store.Pull("w", sum, 0));
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
