// SPDX-License-Identifier: Apache-2.0
// Every codec with everything that may be combined with it, over a whole job in one process,
// against a reference from codecs and plain arithmetic. The codecs come from the registry, so new
// ones are covered too.
#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <optional>
#include <random>
#include <set>

#include "absl/strings/str_cat.h"
#include "compress/codec/catalogue/registry.h"
#include "proto/base/mutex.h"
#include "tests/cluster/codec_reference.h"
#include "tests/cluster/in_process_cluster.h"
#include "worker/combination.h"
#include "worker/exchange/weight_exchange.h"

namespace slimps {
namespace {

constexpr int kRounds = 3;
constexpr int kPreSteps = 4;
constexpr uint32_t kWorkers = 2;
constexpr size_t kPartitionElements = 100;
constexpr float kLearningRate = 0.5f;

struct Setting {
  const char* name;
  wire::StoreMode mode;
  bool optimizer;
  bool backup_model;
};

constexpr Setting kSettings[] = {
    {"sync", wire::DIST_SYNC, true, false},
    {"sync_backup", wire::DIST_SYNC, true, true},
    {"sync_sums", wire::DIST_SYNC, false, false},
    {"sync_sums_backup", wire::DIST_SYNC, false, true},
    {"async", wire::DIST_ASYNC, true, false},
    {"async_backup", wire::DIST_ASYNC, true, true},
    {"async_sums", wire::DIST_ASYNC, false, false},
    {"async_sums_backup", wire::DIST_ASYNC, false, true},
    {"ssp", wire::DIST_SSP, true, false},
    {"ssp_backup", wire::DIST_SSP, true, true},
    {"ssp_sums", wire::DIST_SSP, false, false},
};

// Returns all codecs with their defaults, and options that change their states or schedules.
std::vector<std::string> Specs() {
  std::vector<std::string> specs;
  for (const CodecEntry& entry : AllCodecs()) {
    // The reference here knows payloads alone. powersgd_test.cc and thc_test.cc have their own.
    if (!entry.has_phases) specs.emplace_back(entry.name);
  }
  for (const char* spec :
       {"fp16:error_feedback=on", "1bit:scaling=none", "2bit:error_feedback=off",
        "1bit:momentum=nesterov", "dgc:ratio=0.1,warmup=1", "topk:ratio=0.1,momentum=dgc",
        "randomk:ratio=0.1,error_feedback=on", "atomo:s=1"}) {
    specs.emplace_back(spec);
  }
  return specs;
}

wire::OptimizerSpec Sgd(double momentum = 0) {
  wire::OptimizerSpec spec;
  spec.set_kind(wire::OptimizerSpec::SGD);
  spec.set_learning_rate(kLearningRate);
  spec.set_momentum(momentum);
  spec.set_average(true);
  return spec;
}

std::vector<float> Random(size_t elements, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> values(elements);
  for (float& value : values) value = normal(random);
  return values;
}

// Returns tensors of one partition and of several, in fp32 and half precision, one of each kind of
// layer. Those of several partitions are matrices, whose rows the partitions cut.
std::vector<ReferenceTensor> Tensors() {
  const auto tensor = [](const char* name, size_t elements, wire::DType dtype,
                         wire::LayerKind layer, int64_t row_elements = 1) {
    return ReferenceTensor{.key = Key(name),
                           .dtype = dtype,
                           .layer = layer,
                           .value = Random(elements, elements),
                           .row_elements = row_elements};
  };
  return {tensor("one32", 37, wire::FLOAT32, wire::CONVOLUTION),
          tensor("one16", 38, wire::FLOAT16, wire::DENSE),
          tensor("many32", 260, wire::FLOAT32, wire::DENSE, 13),
          tensor("many16", 264, wire::FLOAT16, wire::CONVOLUTION, 12)};
}

std::vector<float> GradientOf(const ReferenceTensor& tensor, uint32_t worker, int round) {
  return Random(tensor.value.size(),
                1000 * static_cast<uint64_t>(round) + 10 * worker + tensor.value.size());
}

using Weights = std::vector<std::vector<float>>;  // by tensor

// Runs one worker's part. Run() returns the weights that it pulled last.
class Worker final {
 public:
  Worker(KVStore& store, const Setting& setting, int rounds)
      : store_(store), setting_(setting), rounds_(rounds) {}

  Weights Run() {
    InitStore();
    if (setting_.backup_model) {
      TrainWithBackupModel();
    } else {
      for (int round = 1; round <= rounds_; ++round) PushAndPull(round);
    }
    return pulled_;
  }

 private:
  void InitStore() {
    std::vector<InitTensor> init;
    for (const ReferenceTensor& tensor : tensors_) {
      init.push_back({.key = tensor.key,
                      .shape = tensor.shape(),
                      .value = tensor.value,
                      .layer = tensor.layer,
                      .dtype = tensor.dtype});
      pulled_.push_back(tensor.value);
    }
    ASSERT_STATUS_OK(store_.Init(init));
    if (setting_.optimizer) ASSERT_STATUS_OK(store_.SetOptimizer(Sgd()));
    ASSERT_STATUS_OK(store_.Barrier());
  }

  void PushAndPull(int round) {
    // Without rounds, pushes count in the order of their arrival, so the workers take turns.
    const uint32_t turns = setting_.mode != wire::DIST_SYNC ? kWorkers : 1;
    for (uint32_t turn = 0; turn < turns; ++turn) {
      if (turns == 1 || turn == store_.rank()) {
        for (const ReferenceTensor& tensor : tensors_) {
          ASSERT_STATUS_OK(store_.Push(tensor.key, GradientOf(tensor, store_.rank(), round), 0));
        }
        ASSERT_STATUS_OK(store_.Wait());
      }
      if (turns > 1) ASSERT_STATUS_OK(store_.Barrier());
    }
    for (size_t i = 0; i < tensors_.size(); ++i) {
      ASSERT_STATUS_OK(store_.Pull(tensors_[i].key, pulled_[i], 0));
    }
    if (turns > 1) ASSERT_STATUS_OK(store_.Barrier());
  }

  void TrainWithBackupModel() {
    std::vector<Parameter> parameters;
    for (size_t i = 0; i < tensors_.size(); ++i) {
      parameters.push_back({.name = tensors_[i].key.typed_name().substr(2),
                            .shape = tensors_[i].shape(),
                            .values = pulled_[i]});
    }
    ExchangeOptions options{.timeout = store_.timeout(), .backup = BackupModelOptions()};
    options.backup->updater.learning_rate = kLearningRate;
    auto exchange = MakeExchange(&store_, parameters, options, {});
    ASSERT_STATUS_OK(exchange.status());
    for (int round = 1; round <= rounds_; ++round) {
      ASSERT_STATUS_OK((*exchange)->BeginStep());
      Weights gradients;
      for (const ReferenceTensor& tensor : tensors_) {
        gradients.push_back(GradientOf(tensor, store_.rank(), round));
      }
      for (size_t i = 0; i < gradients.size(); ++i) (*exchange)->OnGradient(i, gradients[i]);
      ASSERT_STATUS_OK((*exchange)->EndStep());
    }
    ASSERT_STATUS_OK((*exchange)->Drain());
    ASSERT_STATUS_OK(store_.Close());  // before the exchange goes: pulls write into it
  }

  KVStore& store_;
  const Setting setting_;
  const int rounds_;
  const std::vector<ReferenceTensor> tensors_ = Tensors();
  Weights pulled_;
};

ClusterOptions Cluster(const std::string& spec, const Setting& setting) {
  ClusterOptions options{.workers = kWorkers, .servers = 1, .mode = setting.mode};
  options.store.compression = spec;
  options.store.fixed_threshold_bytes = 0;
  options.store.partition_bytes = kPartitionElements * sizeof(float);
  options.store.grad_scale = 2;
  return options;
}

// Runs the job. Returns the weights, after checking that all workers see the same.
Weights RunJob(const ClusterOptions& options, const Setting& setting, int rounds = kRounds) {
  Mutex mutex;
  std::map<uint32_t, Weights> seen;
  InProcessCluster(options).RunWorkers([&](KVStore& store) {
    Weights pulled = Worker(store, setting, rounds).Run();
    MutexLock lock(&mutex);
    seen[store.rank()] = std::move(pulled);
  });
  EXPECT_EQ(seen.size(), kWorkers);
  for (const auto& [rank, weights] : seen) EXPECT_EQ(weights, seen[0]) << "worker " << rank;
  return seen[0];
}

// Returns the reference's weights. If the threshold is measured, no decision holds in `rounds` yet.
Weights Expected(const ClusterOptions& options, const Setting& setting, int rounds = kRounds) {
  const std::optional<uint64_t> threshold = options.store.fixed_threshold_bytes;
  ReferenceOptions reference{.compression = options.store.compression,
                             .threshold_bytes = threshold.value_or(0),
                             .partition_elements = kPartitionElements,
                             .grad_scale = options.store.grad_scale,
                             .learning_rate = setting.optimizer ? kLearningRate : 0,
                             .mode = setting.mode};
  Weights expected;
  for (const ReferenceTensor& tensor : Tensors()) {
    const bool measured = !threshold.has_value() && IsProfiled(tensor, Tensors());
    reference.measured_rounds = measured ? kPreSteps : 0;
    ReferenceTensorJob job(tensor, reference);
    for (int round = 1; round <= rounds; ++round) {
      Weights gradients;
      for (uint32_t w = 0; w < kWorkers; ++w) gradients.push_back(GradientOf(tensor, w, round));
      job.Round(gradients);
    }
    expected.push_back(job.Pulled());
  }
  return expected;
}

class CodecTable : public ::testing::TestWithParam<std::tuple<std::string, Setting>> {
 protected:
  const std::string spec_ = std::get<0>(GetParam());
  const Setting setting_ = std::get<1>(GetParam());
};

TEST_P(CodecTable, EitherGivesTheReferencesBitsOrIsRefusedWithAReason) {
  const bool vote_alone = spec_ == "signsgd" && setting_.mode != wire::DIST_SYNC;
  const bool async_sums = setting_.mode != wire::DIST_SYNC && !setting_.optimizer;
  const bool backup_alone =
      setting_.backup_model && (setting_.mode != wire::DIST_SYNC || !setting_.optimizer);
  const auto codec = MakeCodecOrDie(spec_);
  const absl::Status allowed =
      CheckCombination({.codec = codec.get(),
                        .mode = setting_.mode,
                        .optimizer = setting_.optimizer ? Sgd() : wire::OptimizerSpec(),
                        .backup_model = setting_.backup_model});
  if (vote_alone || async_sums || backup_alone) {
    EXPECT_EQ(allowed.code(), absl::StatusCode::kInvalidArgument) << allowed;
    EXPECT_NE(allowed.message().find(": expected "), absl::string_view::npos) << allowed;
    return;
  }
  EXPECT_TRUE(allowed.ok()) << allowed;
  const ClusterOptions options = Cluster(spec_, setting_);
  EXPECT_EQ(RunJob(options, setting_), Expected(options, setting_));
}

std::string TestName(std::string name) {
  std::ranges::replace_if(
      name, [](char c) { return std::isalnum(c) == 0; }, '_');
  return name;
}

INSTANTIATE_TEST_SUITE_P(All, CodecTable,
                         ::testing::Combine(::testing::ValuesIn(Specs()),
                                            ::testing::ValuesIn(kSettings)),
                         [](const auto& info) {
                           return TestName(absl::StrCat(std::get<0>(info.param), "_",
                                                        std::get<1>(info.param).name));
                         });

class EveryCodec : public ::testing::TestWithParam<std::string> {};

TEST_P(EveryCodec, UnderAThresholdSmallTensorsGoRawWithTheSameMomentum) {
  const Setting setting = kSettings[0];
  ClusterOptions options = Cluster(GetParam(), setting);
  options.store.fixed_threshold_bytes = 1000;
  EXPECT_EQ(RunJob(options, setting), Expected(options, setting));
}

TEST_P(EveryCodec, LargePartitionsOnSeveralThreadsGiveTheReferencesBits) {
  const ReferenceTensor tensor{
      .key = Key("w"), .layer = wire::DENSE, .value = Random(45'000, 1), .row_elements = 90};
  ClusterOptions options = Cluster(GetParam(), kSettings[0]);
  options.store.partition_bytes = 4 * 20'000;  // not whole blocks
  options.store.encode_threads = 2;
  ReferenceTensorJob expected(tensor, {.compression = GetParam(),
                                       .partition_elements = 20'000,
                                       .grad_scale = options.store.grad_scale,
                                       .learning_rate = kLearningRate});
  const auto gradient = [&](uint32_t worker, int round) {
    return Random(tensor.value.size(), static_cast<uint64_t>(10 * round) + worker);
  };
  for (int round = 1; round <= 2; ++round) {
    expected.Round(Weights{gradient(0, round), gradient(1, round)});
  }
  InProcessCluster(options).RunWorkers([&](KVStore& store) {
    std::vector<float> w = tensor.value;
    ASSERT_STATUS_OK(store.Init(
        {{.key = tensor.key, .shape = tensor.shape(), .value = w, .layer = tensor.layer}}));
    ASSERT_STATUS_OK(store.SetOptimizer(Sgd()));
    ASSERT_STATUS_OK(store.Barrier());
    for (int round = 1; round <= 2; ++round) {
      ASSERT_STATUS_OK(store.PushPull(tensor.key, gradient(store.rank(), round), w, 0));
    }
    EXPECT_TRUE(w == expected.Pulled());  // not printed: it is long
  });
}

ClusterOptions MeasuringCluster(const std::string& spec, const Setting& setting) {
  ClusterOptions options = Cluster(spec, setting);
  options.store.fixed_threshold_bytes.reset();
  options.store.pre_steps = kPreSteps;
  return options;
}

TEST_P(EveryCodec, WhileTheTableIsMeasuredRawAndCompressedRoundsGiveTheReferencesBits) {
  const Setting setting = kSettings[0];
  const ClusterOptions options = MeasuringCluster(GetParam(), setting);
  EXPECT_EQ(RunJob(options, setting, kPreSteps + 1), Expected(options, setting, kPreSteps + 1));
  // The decision depends on measured times, so this only checks that the workers agree.
  RunJob(options, setting, kPreSteps + 2);
}

TEST_P(EveryCodec, WhileTheTableIsMeasuredNothingIsLost) {
  const auto codec = MakeCodecOrDie(GetParam());
  // Other codecs drop what they do not send, or do not send a sum of gradients.
  if (!codec->wants_residual() || codec->wants_momentum() || codec->combine() != Combine::kSum) {
    return;
  }
  // The store keeps sums, so each round's sum can be pulled.
  ClusterOptions options = MeasuringCluster(GetParam(), kSettings[2]);
  // Round 3 goes raw, 4 compressed, 5 raw. The last one carries all that was held back.
  options.store.pre_steps = 5;
  const size_t elements = 257;
  Mutex mutex;
  std::vector<double> arrived(elements), sent(elements);
  InProcessCluster(options).RunWorkers([&](KVStore& store) {
    std::vector<float> w(elements);
    ASSERT_STATUS_OK(store.Init({{.key = "w", .shape = {257}, .value = w, .layer = wire::DENSE}}));
    for (int round = 1; round <= 5; ++round) {
      const auto gradient = Random(elements, static_cast<uint64_t>(10 * round) + store.rank());
      ASSERT_STATUS_OK(store.PushPull("w", gradient, w, 0));
      MutexLock lock(&mutex);
      for (size_t i = 0; i < elements; ++i) {
        sent[i] += 2.0 * static_cast<double>(gradient[i]);
        if (store.rank() == 0) arrived[i] += static_cast<double>(w[i]);
      }
    }
  });
  for (size_t i = 0; i < elements; ++i) ASSERT_NEAR(arrived[i], sent[i], 1e-4) << i;
}

INSTANTIATE_TEST_SUITE_P(All, EveryCodec, ::testing::ValuesIn(Specs()),
                         [](const auto& info) { return TestName(info.param); });

}  // namespace
}  // namespace slimps
