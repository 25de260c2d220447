// SPDX-License-Identifier: Apache-2.0
// Every counter that the scheduler exports equals what the job counts otherwise: the sums of its
// workers' totals, the size of what it trained, and the messages that passed.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "proto/base/clock.h"
#include "proto/base/mutex.h"
#include "proto/slimps.pb.h"
#include "scheduler/watch/job_view.h"
#include "scheduler/watch/job_watch.h"
#include "tests/cluster/hooked_transport.h"
#include "tests/cluster/in_process_cluster.h"
#include "tests/cluster/random_values.h"
#include "tests/proto/base/wait_until.h"
#include "watch/metrics.h"
#include "watch/metrics_text.h"
#include "watch/node_report.pb.h"

namespace slimps {
namespace {

using ::testing::AllOf;
using ::testing::DoubleEq;
using ::testing::DoubleNear;
using ::testing::Ge;
using ::testing::Gt;
using ::testing::HasSubstr;
using ::testing::Le;
using ::testing::Matcher;

constexpr uint32_t kWorkers = 2, kServers = 2;
constexpr int kRounds = 4;
constexpr size_t kLarge = 5000, kSmall = 1;  // elements of the two tensors
constexpr size_t kPartitionBytes = 8192;
constexpr uint64_t kPartitions = 3 + 1;

// Counts what passes through a job's transports. Thread-safe.
class Traffic final {
 public:
  SendHook OfWorker(uint32_t rank) {
    return [this, rank](const Message& message) {
      const wire::Header& header = message.header;
      MutexLock lock(&mutex_);
      pushes_again_ += Again(rank, header.push().items());
      pushes_again_ += Again(rank, header.push_pull().push());
      others_again_ += Again(rank, header.push_pull().pull());
      others_again_ += Again(rank, header.pull().items());
      others_again_ += Again(rank, header.init().items());
      return absl::OkStatus();
    };
  }

  // Loses the server's first answer to pushes.
  SendHook OfServer() {
    return [this, lost = false](const Message& message) mutable {
      MutexLock lock(&mutex_);
      if (message.header.has_push_reply() && !std::exchange(lost, true)) {
        return absl::UnavailableError("lost");
      }
      for (const wire::PullReplyItem& item : message.header.pull_reply().items()) {
        if (item.payload_bytes() == 0) continue;
        const std::string format = absl::AsciiStrToLower(wire::Format_Name(item.format()));
        answered_["server " + format] += static_cast<double>(item.payload_bytes());
      }
      return absl::OkStatus();
    };
  }

  uint64_t pushes_again() const {
    MutexLock lock(&mutex_);
    return pushes_again_;
  }
  uint64_t items_again() const {
    MutexLock lock(&mutex_);
    return pushes_again_ + others_again_;
  }
  // Returns the payload bytes of answers to pulls, by "server FORMAT".
  std::map<std::string, double> answered() const {
    MutexLock lock(&mutex_);
    return answered_;
  }

 private:
  // Returns how many of the items this worker has sent before.
  template <typename Items>
  uint64_t Again(uint32_t rank, const Items& items) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    uint64_t again = 0;
    for (const auto& item : items) again += !sent_.emplace(rank, item.id().ticket()).second;
    return again;
  }

  mutable Mutex mutex_;
  std::set<std::pair<uint32_t, uint64_t>> sent_ ABSL_GUARDED_BY(mutex_);  // worker and ticket
  uint64_t pushes_again_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t others_again_ ABSL_GUARDED_BY(mutex_) = 0;
  std::map<std::string, double> answered_ ABSL_GUARDED_BY(mutex_);
};

// What is known of the job at its end.
struct Job {
  std::vector<std::string> reports{kWorkers};  // the workers', by rank
  std::vector<StoreTotals> totals{kWorkers};
  std::vector<std::string> stalls;  // lines
  std::vector<NodeSamples> exported;
  absl::Duration lasted;
};

ClusterOptions OptionsOf(Traffic* traffic) {
  ClusterOptions options{.workers = kWorkers, .servers = kServers};
  options.store.compression = options.store.pull_compression = "1bit";
  options.store.fixed_threshold_bytes = options.store.fixed_pull_threshold_bytes = 64;
  options.store.partition_bytes = kPartitionBytes;
  options.store.retry_interval = absl::Milliseconds(100);
  options.wrap = Hooked({traffic->OfWorker(0), traffic->OfWorker(1)});
  options.wrap_server = [traffic](std::unique_ptr<Transport> inner) -> std::unique_ptr<Transport> {
    return std::make_unique<HookedTransport>(std::move(inner), traffic->OfServer());
  };
  return options;
}

// Lets the watch see the job as it is, and as if it was `later`. Returns the lines about stalls.
std::vector<std::string> Look(InProcessCluster& cluster, const std::vector<std::string>& workers,
                              SteadyTime now, absl::Duration later, JobWatch* watch) {
  for (uint32_t rank = 0; rank < kServers; ++rank) {
    const std::string report = cluster.server(rank).Report().SerializeAsString();
    watch->TakeReport({wire::SERVER, rank}, report, now);
  }
  for (uint32_t rank = 0; rank < kWorkers; ++rank) {
    watch->TakeReport({wire::WORKER, rank}, workers[rank], now);
  }
  return watch->Observe(cluster.scheduler().Observe({}).view, {}, now + later);
}

uint64_t OpenPartitions(InProcessCluster& cluster) {
  uint64_t partitions = 0;
  for (uint32_t rank = 0; rank < kServers; ++rank) {
    const watch::NodeReport report = cluster.server(rank).Report();
    for (const watch::OpenRounds& open : report.open_rounds()) partitions += open.partitions();
  }
  return partitions;
}

uint64_t RepeatsAtServers(InProcessCluster& cluster) {
  double repeats = 0;
  for (uint32_t rank = 0; rank < kServers; ++rank) {
    repeats += SumOf(cluster.server(rank).Report(), Metric::kRepeatedItems);
  }
  return static_cast<uint64_t>(repeats);
}

void TrainRound(KVStore& store, int round, RandomTensors* model) {
  for (size_t k = 0; k < model->tensors.size(); ++k) {
    const uint64_t seed = 10 * static_cast<uint64_t>(round) + 2 * k + store.rank();
    const std::vector<float> gradient = Random(model->weights[k].size(), seed);
    ASSERT_STATUS_OK(store.Push(model->tensors[k].key, gradient, 0));
  }
  for (size_t k = 0; k < model->tensors.size(); ++k) {
    ASSERT_STATUS_OK(store.Pull(model->tensors[k].key, model->weights[k], 0));
  }
  ASSERT_STATUS_OK(store.Wait());
}

// Worker 1 makes worker 0 wait in the first round until the watch has told a stall. Looks once
// more at the end, when nothing is under way.
Job RunJob(Traffic* traffic) {
  const SteadyTime began = MachineClock()->Now();
  InProcessCluster cluster(OptionsOf(traffic));
  JobWatch watch({.num_workers = kWorkers,
                  .num_servers = kServers,
                  .heartbeat_interval = absl::Hours(1)},  // however slow the machine is
                 began);
  Job job;
  cluster.RunWorkers([&](KVStore& store) {
    const uint32_t rank = store.rank();
    RandomTensors model({kLarge, kSmall});
    ASSERT_STATUS_OK(store.Init(model.tensors));
    for (int round = 1; round <= kRounds; ++round) {
      if (round == 1 && rank == 1) {
        ASSERT_TRUE(WaitUntil([&] { return OpenPartitions(cluster) == kPartitions; }));
        job.stalls = Look(cluster, std::vector<std::string>(kWorkers), MachineClock()->Now(),
                          absl::Seconds(11), &watch);
      }
      TrainRound(store, round, &model);
    }
    ASSERT_STATUS_OK(store.Barrier());
    job.reports[rank] = store.Report(/*details=*/false);
    job.totals[rank] = store.totals();
    ASSERT_STATUS_OK(store.Barrier());
    if (rank == 1) {
      ASSERT_TRUE(WaitUntil([&] { return RepeatsAtServers(cluster) == traffic->pushes_again(); }));
      (void)Look(cluster, job.reports, MachineClock()->Now(), absl::Seconds(11), &watch);
      job.exported = watch.Samples();
      job.lasted = MachineClock()->Now() - began;
    }
    ASSERT_STATUS_OK(store.Barrier());
  });
  return job;
}

// Returns what all nodes export of one metric, added by role and labels: "worker push 1bit".
std::map<std::string, double> Exported(const Job& job, Metric metric) {
  std::map<std::string, double> sums;
  for (const NodeSamples& node : job.exported) {
    for (const watch::Sample& sample : node.report.samples()) {
      if (sample.metric() != static_cast<uint32_t>(metric)) continue;
      std::string name = node.role;
      for (const std::string& label : sample.labels()) absl::StrAppend(&name, " ", label);
      sums[name] += sample.value();
    }
  }
  return sums;
}

StoreTotals SumOf(const std::vector<StoreTotals>& workers) {
  StoreTotals sum;
  for (const StoreTotals& one : workers) {
    sum.pushed.Add(one.pushed);
    sum.bytes_pushed += one.bytes_pushed;
    sum.bytes_pulled += one.bytes_pulled;
    sum.bytes_shared += one.bytes_shared;
    sum.copy += one.copy;
    sum.encode += one.encode;
    sum.send += one.send;
    sum.decode += one.decode;
  }
  return sum;
}

// Within rounding, so exact for counts.
Matcher<double> Is(uint64_t count) { return DoubleEq(static_cast<double>(count)); }
Matcher<double> Is(double sum) { return DoubleEq(sum); }
Matcher<double> Is(absl::Duration sum) { return DoubleEq(absl::ToDoubleSeconds(sum)); }

// Keyed by role and labels.
using Values = std::map<std::string, Matcher<double>>;

std::map<Metric, Values> ExpectedOf(const Job& job, const Traffic& traffic) {
  const StoreTotals sum = SumOf(job.totals);
  constexpr uint64_t kFloat = sizeof(float), kPushes = kWorkers * kRounds;  // each tensor's
  constexpr uint64_t kRaw = kPushes * (kLarge + kSmall) * kFloat;
  constexpr uint64_t kSmallBytes = kPushes * kSmall * kFloat;  // too small for a codec
  // The first pull of a tensor brings its weights.
  constexpr uint64_t kPulledRaw = kSmallBytes + kWorkers * kLarge * kFloat;
  const double travelled = Exported(job, Metric::kTravelSeconds)["worker"];
  const double overlapped = Exported(job, Metric::kOverlapSeconds)["worker"];
  const double lasted = absl::ToDoubleSeconds(job.lasted);
  const Matcher<double> of_workers = AllOf(Gt(0.0), Le(kWorkers * lasted));
  const Matcher<double> of_servers = AllOf(Gt(0.0), Le(kServers * lasted));
  Values answered;
  for (const auto& [format, bytes] : traffic.answered()) answered[format] = Is(bytes);
  return {
      {Metric::kPushes, {{"worker", Is(2 * kPushes)}}},
      {Metric::kRawBytes, {{"worker push", Is(kRaw)}, {"worker pull", Is(kRaw)}}},
      {Metric::kPayloadBytes,
       {{"worker push none", Is(kSmallBytes)},
        {"worker push 1bit", Is(sum.bytes_pushed - kSmallBytes)},
        {"worker pull none", Is(kPulledRaw)},
        {"worker pull 1bit", Is(sum.bytes_pulled - kPulledRaw)}}},
      {Metric::kSharedMemoryBytes, {{"worker", Is(sum.bytes_shared)}}},
      {Metric::kStageSeconds,
       {{"worker copy", Is(sum.copy)},
        {"worker encode", Is(sum.encode)},
        {"worker send", Is(sum.send)},
        {"worker wait", DoubleNear(travelled - overlapped, 1e-6)},
        {"worker decode", Is(sum.decode)},
        {"server step", of_servers}}},
      {Metric::kCompressedNorm, {{"worker", AllOf(Gt(0.0), Is(sum.pushed.input_norm2))}}},
      {Metric::kSentNorm, {{"worker", AllOf(Gt(0.0), Is(sum.pushed.decoded_norm2))}}},
      {Metric::kLostNorm, {{"worker", AllOf(Gt(0.0), Is(sum.pushed.error_norm2))}}},
      {Metric::kTravelSeconds, {{"worker", of_workers}}},
      {Metric::kOverlapSeconds, {{"worker", AllOf(Ge(0.0), Le(travelled))}}},
      {Metric::kRepeatedItems,
       {{"worker", Is(traffic.items_again())}, {"server", Is(traffic.pushes_again())}}},
      {Metric::kRoundsOver, {{"server", Is(kRounds * kPartitions)}}},
      {Metric::kReceivedBytes,
       {{"server raw_f32", Is(kSmallBytes)},
        {"server levels", Is(sum.bytes_pushed - kSmallBytes)}}},
      {Metric::kSentBytes, answered},
      {Metric::kWaitedForWorker,
       {{"server 0", AllOf(Ge(0.0), Le(kServers * lasted))}, {"server 1", of_servers}}},
      {Metric::kRestarts, {{"server", Is(0.0)}, {"worker", Is(0.0)}}},
      {Metric::kStalls, {{"scheduler", Is(uint64_t{job.stalls.size()})}}},
  };
}

TEST(SummaryCounters, EveryCounterIsWhatTheJobCountsItself) {
  Traffic traffic;
  const Job job = RunJob(&traffic);
  ASSERT_EQ(job.stalls.size(), 1u);
  EXPECT_THAT(job.stalls[0], HasSubstr(" s for worker 1: "));
  EXPECT_GE(traffic.pushes_again(), kServers) << "each server's first answer was lost";
  EXPECT_EQ(traffic.answered().size(), 2u) << "weights, then their changes";
  const std::map<Metric, Values> expected = ExpectedOf(job, traffic);
  size_t compared = 0;
  for (uint32_t number = 0; const MetricInfo* info = FindMetric(number); ++number) {
    if (info->kind != MetricKind::kCounter) continue;
    SCOPED_TRACE(info->name);
    const auto values = expected.find(static_cast<Metric>(number));
    ASSERT_NE(values, expected.end()) << "this test does not know what the job counts itself";
    const std::map<std::string, double> exported = Exported(job, values->first);
    for (const auto& [name, value] : exported) {
      ASSERT_TRUE(values->second.contains(name)) << name;
      EXPECT_THAT(value, values->second.at(name)) << name;
    }
    EXPECT_EQ(exported.size(), values->second.size()) << "some are not exported";
    ++compared;
  }
  EXPECT_EQ(compared, expected.size());
}

}  // namespace
}  // namespace slimps
