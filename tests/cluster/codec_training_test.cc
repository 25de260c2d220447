// SPDX-License-Identifier: Apache-2.0
// Every codec trains a real model on real data over real servers, in one process.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "compress/codec/catalogue/registry.h"
#include "compress/policy/threshold_explanation.h"
#include "tests/cluster/in_process_cluster.h"
#include "worker/trainer/dataset.h"
#include "worker/trainer/options.h"
#include "worker/trainer/summary.h"
#include "worker/trainer/train_loop.h"

namespace slimps {
namespace {

constexpr char kDigits[] = "/usr/lib/python3/dist-packages/sklearn/datasets/data/digits.csv.gz";
constexpr uint32_t kWorkers = 2;
constexpr double kUsualRate = 0.2;

struct Setting {
  std::string compression;
  double lr = kUsualRate;
  std::string pull_compression = "none";
};

// Settings for codecs whose defaults do not suit a model of 650 parameters or this learning rate.
Setting UsualSetting(std::string_view codec) {
  static const std::map<std::string_view, Setting> settings = {
      {"signsgd", {"signsgd", 0.005}},
      {"topk", {"topk:ratio=0.05"}},
      {"randomk", {"randomk:ratio=0.1"}},
      {"mstopk", {"mstopk:ratio=0.05"}},
      {"redsync", {"redsync:ratio=0.05"}},
      {"threshold", {"threshold:tau=0.5"}},
      {"dgc", {"dgc:ratio=0.05,warmup=5", kUsualRate / 10}},  // it has a momentum of 0.9 itself
  };
  const auto found = settings.find(codec);
  return found == settings.end() ? Setting{std::string(codec)} : found->second;
}

// Returns true if the codec makes payloads smaller than half precision does.
bool Compresses(std::string_view codec) {
  return codec != "none" && codec != "fp16" && codec != "bf16";
}

struct Outcome {
  double accuracy = 0;
  TrainingReport report;
  std::optional<wire::CodecMap> decision;
};

class EveryCodecTrains : public ::testing::TestWithParam<std::string> {
 protected:
  static void SetUpTestSuite() { SetComputeThreads(1); }

  void SetUp() override {
    if (!std::filesystem::exists(kDigits)) GTEST_SKIP() << "needs " << kDigits;
    auto data = LoadDataset("digits", "");
    ASSERT_TRUE(data.ok()) << data.status();
    data_ = *std::move(data);
  }

  Outcome Train(const Setting& setting, const std::string& threshold,
                const std::string& backup_model) {
    WorkerFlags flags;
    flags.model = "logistic";
    flags.batch = 16;
    flags.epochs = 5;
    flags.lr = setting.lr;
    flags.store = {{"scheduler", "unused:1"},
                   {"num_workers", std::to_string(kWorkers)},
                   {"compression", setting.compression},
                   {"threshold", threshold},
                   {"pull_compression", setting.pull_compression},
                   {"pull_threshold", "0"},
                   {"pre_steps", "6"}};
    flags.backup_model = backup_model;
    const auto options = CheckWorkerFlags(flags);
    EXPECT_TRUE(options.ok()) << options.status();
    std::vector<std::unique_ptr<Model>> models;
    for (uint32_t rank = 0; rank < kWorkers; ++rank) {
      models.push_back(*MakeModel("logistic", data_, rank));  // rank 0's weights count
    }
    Outcome outcome;
    InProcessCluster({.workers = kWorkers, .servers = 1, .store = options->store})
        .RunWorkers([&](KVStore& store) {
          const auto report =
              slimps::Train(options->train, data_, models[store.rank()].get(), &store, nullptr);
          ASSERT_TRUE(report.ok()) << report.status();
          if (store.rank() != 0) return;
          outcome.report = *report;
          outcome.decision = store.codec_map();
        });
    const auto test = EvaluateTestSplit(data_, models[0].get());
    EXPECT_TRUE(test.ok()) << test.status();
    outcome.accuracy = test->Accuracy();
    return outcome;
  }

  Dataset data_;
};

TEST_P(EveryCodecTrains, AloneAndUnderTheThresholdTable) {
  const Setting setting = UsualSetting(GetParam());
  const Outcome alone = Train(setting, "0", "off");
  EXPECT_GT(alone.accuracy, 0.88);
  EXPECT_GT(alone.report.pushed.elements_sent, 0u);
  EXPECT_LE(alone.report.pushed.elements_sent, alone.report.pushed.elements);
  EXPECT_GT(alone.report.pushed.CompressionGain(), 0);
  if (GetParam() != "none") {
    EXPECT_LT(alone.report.bytes_pushed, alone.report.pushed.elements * sizeof(float));
  }
  if (Compresses(GetParam())) {
    EXPECT_GT(alone.report.pushed.input_norm2, 0);
  }
  uint64_t elements = 0, sent = 0;
  for (const TensorPushes& tensor : alone.report.tensors) {
    elements += tensor.pushed.elements;
    sent += tensor.pushed.elements_sent;
  }
  EXPECT_EQ(elements, alone.report.pushed.elements);
  EXPECT_EQ(sent, alone.report.pushed.elements_sent);
  // What takes several phases is not measured.
  const bool measured_alone = MakeCodec(GetParam()).value()->phases() == nullptr;
  const Outcome table = Train(setting, measured_alone ? "auto" : "0", "on");
  EXPECT_GT(table.accuracy, 0.88);
  if (GetParam() == "none" || !measured_alone) return;
  ASSERT_TRUE(table.decision.has_value());
  const auto measured = TableOf(table.decision);
  ASSERT_TRUE(measured.ok()) << measured.status();
  ASSERT_FALSE(measured->empty());
  const std::vector<ThresholdRow> rows = measured->Rows();
  EXPECT_GE(std::ranges::count_if(rows, &ThresholdRow::complete), 2)
      << "sizes measured both ways:\n"
      << ExplainTable(*measured);
  EXPECT_LT(table.report.bytes_pushed, table.report.pushed.elements * sizeof(float))
      << "in the measured rounds at least";
  if (Compresses(GetParam())) {
    EXPECT_GT(table.report.pushed.input_norm2, 0);
  }
  if (!table.decision->has_threshold()) {
    EXPECT_NE(ExplainTable(*measured).find("compressing saves nothing"), std::string::npos)
        << ExplainTable(*measured);
  }
}

// Both pushes and pulls are compressed.
class BothWays : public EveryCodecTrains {};

TEST_P(BothWays, LearnsOnAFractionOfTheBytes) {
  for (const char* backup_model : {"off", "on"}) {
    const Outcome raw = Train({"1bit"}, "0", backup_model);
    const Outcome both =
        Train({.compression = "1bit", .pull_compression = GetParam()}, "0", backup_model);
    EXPECT_GT(both.accuracy, 0.88) << backup_model;
    EXPECT_LT(both.report.bytes_pulled, raw.report.bytes_pulled / 5) << backup_model;
  }
}

INSTANTIATE_TEST_SUITE_P(All, BothWays, ::testing::Values("1bit", "topk:ratio=0.05"),
                         [](const auto& info) { return "_" + info.param.substr(0, 4); });

std::vector<std::string> Names() {
  std::vector<std::string> names;
  for (const CodecEntry& entry : AllCodecs()) names.emplace_back(entry.name);
  return names;
}

INSTANTIATE_TEST_SUITE_P(All, EveryCodecTrains, ::testing::ValuesIn(Names()),
                         [](const auto& info) { return "_" + info.param; });

}  // namespace
}  // namespace slimps
