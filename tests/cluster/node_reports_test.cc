// SPDX-License-Identifier: Apache-2.0
// What nodes say of themselves while a job runs: the same as their totals, and who waits for whom.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "proto/base/mutex.h"
#include "proto/base/thread.h"
#include "proto/base/trace/trace.h"
#include "proto/limits.h"
#include "tests/cluster/in_process_cluster.h"
#include "tests/proto/base/wait_until.h"
#include "watch/metrics.h"

namespace slimps {
namespace {

using ::testing::ElementsAre;
using ::testing::UnorderedElementsAre;

constexpr size_t kElements = 5000;

watch::NodeReport ReportOf(const KVStore& store, bool details) {
  watch::NodeReport report;
  EXPECT_TRUE(report.ParseFromString(store.Report(details)));
  return report;
}
watch::NodeReport ReportOf(const KVStore& store) { return ReportOf(store, /*details=*/false); }

// Returns an open round of one server; nullopt: it has none.
std::optional<watch::OpenRounds> OpenRoundOf(ServerNode& server) {
  const watch::NodeReport report = server.Report();
  if (report.open_rounds_size() == 0) return std::nullopt;
  return report.open_rounds(0);
}

void InitBoth(KVStore& store) {
  const std::vector<float> zeros(kElements);
  ASSERT_STATUS_OK(store.Init({{.key = "w", .shape = {kElements}, .value = zeros},
                               {.key = "b", .shape = {1}, .value = std::span(zeros).first(1)}}));
}

void Train(KVStore& store, int rounds) {
  std::vector<float> values(kElements, 1);
  for (int round = 0; round < rounds; ++round) {
    ASSERT_STATUS_OK(store.Push("w", values, 0));
    ASSERT_STATUS_OK(store.Push("b", std::span(values).first(1), 0));
    ASSERT_STATUS_OK(store.Pull("w", values, 0));
    ASSERT_STATUS_OK(store.Pull("b", std::span(values).first(1), 0));
  }
  ASSERT_STATUS_OK(store.Wait());
}

TEST(NodeReports, AWorkersSamplesEqualItsTotals) {
  ClusterOptions options;
  options.store.compression = "1bit";
  options.store.fixed_threshold_bytes = 64;
  options.store.partition_bytes = 8192;
  InProcessCluster cluster(options);
  cluster.RunWorkers([](KVStore& store) {
    InitBoth(store);
    Train(store, 3);
    const StoreTotals totals = store.totals();
    const watch::NodeReport report = ReportOf(store);
    const auto sum = [&report](Metric metric, const std::vector<std::string>& labels = {}) {
      return SumOf(report, metric, labels);
    };
    EXPECT_EQ(sum(Metric::kRound), 3);
    EXPECT_EQ(sum(Metric::kPushes), 6);
    EXPECT_EQ(sum(Metric::kPayloadBytes, {"push"}), totals.bytes_pushed);
    EXPECT_EQ(sum(Metric::kPayloadBytes, {"push", "none"}), 3 * sizeof(float));
    EXPECT_EQ(sum(Metric::kPayloadBytes, {"push", "1bit"}),
              totals.bytes_pushed - 3 * sizeof(float));
    EXPECT_EQ(sum(Metric::kPayloadBytes, {"pull"}), totals.bytes_pulled);
    EXPECT_EQ(sum(Metric::kRawBytes, {"push"}), 3 * (kElements + 1) * sizeof(float));
    EXPECT_EQ(sum(Metric::kRawBytes, {"pull"}), 3 * (kElements + 1) * sizeof(float));
    EXPECT_EQ(sum(Metric::kSharedMemoryBytes), totals.bytes_shared);
    EXPECT_EQ(sum(Metric::kStageSeconds, {"copy"}), absl::ToDoubleSeconds(totals.copy));
    EXPECT_EQ(sum(Metric::kStageSeconds, {"encode"}), absl::ToDoubleSeconds(totals.encode));
    EXPECT_EQ(sum(Metric::kStageSeconds, {"send"}), absl::ToDoubleSeconds(totals.send));
    EXPECT_DOUBLE_EQ(sum(Metric::kStageSeconds, {"wait"}),
                     sum(Metric::kTravelSeconds) - sum(Metric::kOverlapSeconds));
    EXPECT_EQ(sum(Metric::kStageSeconds, {"decode"}), absl::ToDoubleSeconds(totals.decode));
    EXPECT_EQ(sum(Metric::kCompressedNorm), totals.pushed.input_norm2);
    EXPECT_EQ(sum(Metric::kSentNorm), totals.pushed.decoded_norm2);
    EXPECT_EQ(sum(Metric::kLostNorm), totals.pushed.error_norm2);
    EXPECT_EQ(sum(Metric::kQueueDepth), 0);
    EXPECT_EQ(sum(Metric::kRepeatedItems), 0);
    EXPECT_LE(sum(Metric::kOverlapSeconds), sum(Metric::kTravelSeconds));
    EXPECT_EQ(report.activity().round(), 3u);
    EXPECT_EQ(report.tensors_size(), 0) << "nobody wants details";
  });
}

TEST(NodeReports, RowsThatWerePulledCount) {
  InProcessCluster cluster({.workers = 1, .servers = 1});
  cluster.RunWorkers([](KVStore& store) {
    const std::vector<float> zeros(12);
    ASSERT_STATUS_OK(store.Init({{.key = "t", .shape = {4, 3}, .value = zeros}}));
    const std::vector<int64_t> ids = {2};
    ASSERT_STATUS_OK(store.PushRowSparse("t", ids, std::vector<float>(3, 1), 0));
    std::vector<int64_t> rows;
    std::vector<float> values;
    ASSERT_STATUS_OK(store.PullRows("t", ids, &rows, &values, 0));
    ASSERT_STATUS_OK(store.Wait());
    const watch::NodeReport report = ReportOf(store);
    EXPECT_EQ(SumOf(report, Metric::kPayloadBytes, {"pull", "rows"}), 3 * sizeof(float));
    EXPECT_EQ(SumOf(report, Metric::kPayloadBytes, {"push", "rows"}), store.totals().bytes_pushed);
  });
}

TEST(NodeReports, PhasesOfACodecsExchangeCountBesideItsPayloads) {
  ClusterOptions options{.servers = 1};
  options.store.compression = "powersgd:rank=1";
  options.store.fixed_threshold_bytes = 64;
  InProcessCluster cluster(options);
  cluster.RunWorkers([](KVStore& store) {
    std::vector<float> values(64 * 64);
    ASSERT_STATUS_OK(store.Init({{.key = "w", .shape = {64, 64}, .value = values}}));
    values.assign(values.size(), 1);
    ASSERT_STATUS_OK(store.Push("w", values, 0));
    ASSERT_STATUS_OK(store.Pull("w", values, 0));
    ASSERT_STATUS_OK(store.Wait());
    const watch::NodeReport report = ReportOf(store);
    EXPECT_EQ(SumOf(report, Metric::kPayloadBytes, {"push"}), store.totals().bytes_pushed);
    EXPECT_EQ(SumOf(report, Metric::kPayloadBytes, {"pull"}), store.totals().bytes_pulled);
    EXPECT_GT(SumOf(report, Metric::kPayloadBytes, {"push", "phases"}), 0);
  });
}

TEST(NodeReports, ServersCountWhatWorkersSendAndPull) {
  InProcessCluster cluster({.servers = 1});
  Mutex mutex;
  StoreTotals all;
  cluster.RunWorkers([&](KVStore& store) {
    InitBoth(store);
    Train(store, 2);
    ASSERT_STATUS_OK(store.Barrier());
    MutexLock lock(&mutex);
    all.bytes_pushed += store.totals().bytes_pushed;
    all.bytes_pulled += store.totals().bytes_pulled;
  });
  const watch::NodeReport report = cluster.server(0).Report();
  EXPECT_EQ(SumOf(report, Metric::kReceivedBytes, {"raw_f32"}), all.bytes_pushed);
  EXPECT_EQ(SumOf(report, Metric::kSentBytes, {"raw_f32"}), all.bytes_pulled);
  EXPECT_EQ(SumOf(report, Metric::kRoundsOver), 4) << "two rounds of two keys";
  EXPECT_EQ(SumOf(report, Metric::kRepeatedItems), 0);
  EXPECT_GT(SumOf(report, Metric::kStageSeconds, {"step"}), 0);
  EXPECT_EQ(SumOf(report, Metric::kQueueDepth, {"shards"}), 0);
  EXPECT_EQ(report.open_rounds_size(), 0);
}

TEST(NodeReports, ARoundThatWaitsNamesTheMissingWorkerAndTheTensors) {
  InProcessCluster cluster({.servers = 1});
  cluster.RunWorkers([&cluster](KVStore& store) {
    InitBoth(store);
    std::vector<float> values(kElements, 1);
    if (store.rank() == 0) {
      ASSERT_STATUS_OK(store.Push("w", values, 0));
      ASSERT_STATUS_OK(store.Push("b", std::span(values).first(1), 0));
    } else {
      ASSERT_TRUE(WaitUntil([&] {
        const auto open = OpenRoundOf(cluster.server(0));
        return open.has_value() && open->partitions() == 2;
      }));
      const watch::OpenRounds open = *OpenRoundOf(cluster.server(0));
      EXPECT_EQ(open.round(), 1u);
      EXPECT_THAT(open.missing(), ElementsAre(1));
      EXPECT_THAT(open.tensors(), UnorderedElementsAre("s:b", "s:w"));
      EXPECT_GT(SumOf(cluster.server(0).Report(), Metric::kWaitedForWorker, {"1"}), 0);
      ASSERT_STATUS_OK(store.Push("w", values, 0));
      ASSERT_STATUS_OK(store.Push("b", std::span(values).first(1), 0));
    }
    ASSERT_STATUS_OK(store.Pull("w", values, 0));
    ASSERT_STATUS_OK(store.Barrier());
  });
}

TEST(NodeReports, ACallInProgressIsShown) {
  InProcessCluster cluster({.workers = 2, .servers = 1});
  cluster.RunWorkers([](KVStore& store) {
    InitBoth(store);
    EXPECT_EQ(ReportOf(store).activity().call(), "init");
    EXPECT_FALSE(ReportOf(store).activity().in_progress());
    if (store.rank() == 0) {
      Thread waits("waits", [&store] { EXPECT_TRUE(store.Barrier().ok()); });
      EXPECT_TRUE(WaitUntil([&] { return ReportOf(store).activity().in_progress(); }));
      EXPECT_EQ(ReportOf(store).activity().call(), "barrier");
      std::vector<float> one(1, 1);
      ASSERT_STATUS_OK(store.Push("b", one, 0));  // lets worker 1 go on
      waits.Join();
    } else {
      std::vector<float> one(1, 1);
      ASSERT_STATUS_OK(store.Push("b", one, 0));
      ASSERT_STATUS_OK(store.Pull("b", one, 0));
      ASSERT_STATUS_OK(store.Barrier());
    }
    EXPECT_EQ(ReportOf(store).activity().call(), "barrier");
    EXPECT_FALSE(ReportOf(store).activity().in_progress());
  });
}

TEST(NodeReports, ManyLongNamesFitIntoAReport) {
  InProcessCluster cluster({.workers = 1, .servers = 1});
  cluster.RunWorkers([](KVStore& store) {
    const std::vector<float> zero(1);
    std::vector<InitTensor> tensors;
    for (int i = 0; i < 600; ++i) {
      tensors.push_back(
          {.key = absl::StrCat(i, std::string(400, 'x')), .shape = {1}, .value = zero});
    }
    ASSERT_STATUS_OK(store.Init(tensors));
    const std::string report = store.Report(/*details=*/true);
    EXPECT_LE(report.size(), kDefaultLimits.max_report_bytes);
    EXPECT_GT(ReportOf(store, /*details=*/true).tensors_size(), 100);
  });
}

TEST(NodeReports, DetailsAreOfEachTensorAndFromWorkerZeroAlone) {
  ClusterOptions options{.servers = 2};
  options.store.compression = "1bit";
  options.store.fixed_threshold_bytes = 64;
  options.store.partition_bytes = 8192;
  InProcessCluster cluster(options);
  cluster.RunWorkers([](KVStore& store) {
    InitBoth(store);
    if (store.rank() == 0) TraceLog::Global().Watch();
    Train(store, 3);
    const watch::NodeReport report = ReportOf(store, /*details=*/true);
    if (store.rank() == 1) {
      EXPECT_EQ(report.tensors_size(), 0);
      EXPECT_EQ(report.timeline_size(), 0);
    } else {
      ASSERT_EQ(report.tensors_size(), 2);
      const watch::TensorFigures& w = report.tensors(0);
      EXPECT_EQ(w.name(), "s:w");
      EXPECT_EQ(w.elements(), kElements);
      EXPECT_THAT(w.servers(), ElementsAre(0, 1));
      EXPECT_EQ(w.codec(), "1bit");
      EXPECT_EQ(w.rounds(), 3u);
      EXPECT_EQ(w.push_bytes(), store.push_counts("w").payload_bytes);
      EXPECT_EQ(w.pull_bytes(), 3 * kElements * sizeof(float));
      EXPECT_EQ(report.tensors(1).codec(), "none");
      EXPECT_GT(report.timeline_size(), 0);
      (void)ReportOf(store);
      EXPECT_TRUE(TraceLog::Global().on()) << "a look at metrics ended what the page watches";
    }
    for (const watch::Span& span : report.timeline()) {
      EXPECT_GE(span.begin_s(), 0);
      EXPECT_GE(span.end_s(), span.begin_s());
    }
    ASSERT_STATUS_OK(store.Barrier());
  });
  EXPECT_FALSE(TraceLog::Global().on()) << "nobody asks a closed store for spans";
}

TEST(NodeReports, AServerTellsItsOldestOpenRounds) {
  constexpr uint64_t kRounds = 20;
  InProcessCluster cluster({.servers = 1});
  cluster.RunWorkers([&cluster](KVStore& store) {
    float value = 0;
    for (uint64_t last = 1; last <= kRounds; ++last) {  // a key for each round to be open
      const Key key(absl::StrCat("k", last));
      ASSERT_STATUS_OK(store.Init({{.key = key, .shape = {1}, .value = std::span(&value, 1)}}));
      for (uint64_t round = 1; round < last; ++round) {
        ASSERT_STATUS_OK(store.PushPull(key, std::span(&value, 1), std::span(&value, 1), 0));
      }
      ASSERT_STATUS_OK(store.Wait());
      if (store.rank() == 0) ASSERT_STATUS_OK(store.Push(key, std::span(&value, 1), 0));
    }
    if (store.rank() == 0) {
      ASSERT_TRUE(WaitUntil([&] { return cluster.server(0).Report().open_rounds_size() == 16; }));
      EXPECT_EQ(OpenRoundOf(cluster.server(0))->round(), 1u);
    }
    ASSERT_STATUS_OK(store.Barrier());
    if (store.rank() == 1) {
      for (uint64_t last = 1; last <= kRounds; ++last) {
        ASSERT_STATUS_OK(store.Push(Key(absl::StrCat("k", last)), std::span(&value, 1), 0));
      }
    }
  });
}

}  // namespace
}  // namespace slimps
