// SPDX-License-Identifier: Apache-2.0
// thc over whole jobs, bit for bit beside one thread that runs the workers' exchanges one after the
// other. tests/reference/rotated_test.py compares the codec's own bits with numpy's.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "compress/codec/phases.h"
#include "compress/format/sum.h"
#include "proto/base/key.h"
#include "proto/base/mutex.h"
#include "tests/cluster/exchanges/planned_job.h"
#include "tests/cluster/in_process_cluster.h"
#include "tests/cluster/random_values.h"

namespace slimps {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr float kRate = 0.125f;
constexpr float kGradScale = 0.5f;
constexpr uint32_t kWorkers = 2;
constexpr size_t kPartitionElements = 8192;  // two blocks

// A matrix of three partitions, the last one odd; one of a whole block; a vector.
const std::vector<std::vector<int64_t>> kShapes = {{180, 100}, {64, 64}, {70}};

const Plan kAllPush = AllPush(4);

// The workers' gradients differ in size, so the norms of most blocks are worker 1's.
std::vector<float> GradientOf(size_t tensor, size_t round, uint32_t worker) {
  std::vector<float> gradient =
      Random(ElementsOf(kShapes[tensor]), 1000 * round + 10 * tensor + worker);
  for (float& value : gradient) value *= static_cast<float>(1 + worker);
  return gradient;
}

// One worker's state of one tensor.
struct WorkerState {
  std::vector<float> gradient, residual;
  std::vector<PhasedPart> parts;
  std::unique_ptr<PhasedRun> run;
  std::vector<std::vector<std::byte>> payloads;  // by part
};

// One tensor of the reference.
class Reference {
 public:
  Reference(size_t tensor, const std::string& codec)
      : shape_(kShapes[tensor]),
        elements_(ElementsOf(shape_)),
        key_(Key("w" + std::to_string(tensor)).id()),
        codec_(MakeCodec(codec).value()),
        memory_(codec_->phases()->AuxiliaryKeys(shape_)[0].elements()),
        workers_(kWorkers) {
    for (WorkerState& worker : workers_) worker.residual.resize(elements_);
  }

  // Returns the sum of what the workers send. A gradient that is missing is none.
  std::vector<float> Round(uint64_t round, std::map<uint32_t, std::vector<float>> gradients) {
    std::vector<float> norms(memory_.size());
    for (auto& [rank, gradient] : gradients) {
      Begin(rank, round, std::move(gradient));
      WriteIfReady(workers_[rank]);
      std::vector<float> mine(norms.size());
      EXPECT_TRUE(workers_[rank].run->Contribute(0, mine).ok());
      std::ranges::transform(norms, mine, norms.begin(),
                             [](float a, float b) { return std::max(a, b); });
    }
    const std::vector<uint32_t> contributors(gradients.size());
    for (auto& [rank, gradient] : gradients) {
      EXPECT_TRUE(workers_[rank].run->Take(0, norms, contributors).ok());
      WriteIfReady(workers_[rank]);
    }
    std::vector<float> sum(elements_);
    for (size_t first = 0, part = 0; first < elements_; first += kPartitionElements, ++part) {
      std::vector<PayloadView> views;
      for (auto& [rank, gradient] : gradients) {
        views.push_back({codec_->format(), workers_[rank].payloads[part]});
      }
      EXPECT_EQ(LanesRun(views), views.size()) << "all are summed as integers";
      const size_t n = std::min(kPartitionElements, elements_ - first);
      SumPayloads(views, n, 0, std::span(sum).subspan(first, n));
    }
    return sum;
  }

 private:
  static void WriteIfReady(WorkerState& worker) {
    if (!worker.payloads.empty() || !worker.run->may_write()) return;
    for (size_t part = 0; part < worker.parts.size(); ++part) {
      worker.payloads.emplace_back(worker.run->MaxPayloadBytes(part));
      EXPECT_TRUE(worker.run->Write(part, worker.payloads.back()).ok());
    }
  }

  void Begin(uint32_t rank, uint64_t round, std::vector<float> gradient) {
    WorkerState& worker = workers_[rank];
    worker.gradient = std::move(gradient);
    worker.parts.clear();
    worker.payloads.clear();
    for (size_t first = 0; first < elements_; first += kPartitionElements) {
      const size_t n = std::min(kPartitionElements, elements_ - first);
      worker.parts.push_back({.elements = n,
                              .gradient = std::span(worker.gradient).subspan(first, n),
                              .residual = std::span(worker.residual).subspan(first, n)});
    }
    worker.run =
        codec_->phases()->BeginExchange({.shape = shape_,
                                         .parts = worker.parts,
                                         .memory = memory_,
                                         .grad_scale = kGradScale,
                                         .context = {.key = key_, .round = round, .worker = rank}});
  }

  const std::vector<int64_t> shape_;
  const size_t elements_;
  const KeyId key_;
  const std::unique_ptr<Codec> codec_;
  std::vector<float> memory_;  // the same for all workers
  std::vector<WorkerState> workers_;
};

ClusterOptions Options() {
  ClusterOptions options{.workers = kWorkers, .servers = 2};
  options.store.compression = "thc";
  options.store.fixed_threshold_bytes = 0;
  options.store.grad_scale = kGradScale;
  // Not whole blocks: thc takes the 8192 elements that are.
  options.store.partition_bytes = 10'000 * sizeof(float);
  return options;
}

PlannedJob TheJob() {
  return {.options = Options(),
          .shapes = kShapes,
          .learning_rate = double{kRate},
          .gradient_of = GradientOf};
}

// A step of kRate is exact but for its two roundings, so the servers' bits are these.
Weights Expected(const Plan& plan, bool stores_sums, const std::string& codec = "thc") {
  Weights weights = TheJob().FirstWeights();
  for (size_t t = 0; t < kShapes.size(); ++t) {
    Reference reference(t, codec);
    for (size_t round = 0; round < plan.size(); ++round) {
      std::map<uint32_t, std::vector<float>> gradients;
      size_t present = 0;
      for (uint32_t worker = 0; worker < kWorkers; ++worker) {
        if (plan[round][worker] == Does::kLeave) continue;
        ++present;
        if (plan[round][worker] == Does::kPush) gradients[worker] = GradientOf(t, round, worker);
      }
      const bool empty = gradients.empty();
      const std::vector<float> sum = reference.Round(round + 1, std::move(gradients));
      for (size_t i = 0; i < sum.size(); ++i) {
        const float step = kRate * (sum[i] * (1 / static_cast<float>(present)));
        weights[t][i] = stores_sums ? (empty ? 0 : sum[i]) : weights[t][i] - step;
      }
    }
  }
  return weights;
}

void ExpectEqual(const Weights& got, const Weights& expected) {
  ASSERT_EQ(got.size(), expected.size());
  for (size_t t = 0; t < got.size(); ++t) {
    ASSERT_EQ(got[t].size(), expected[t].size());
    const auto [mine, theirs] = std::ranges::mismatch(got[t], expected[t]);
    if (mine == got[t].end()) continue;
    FAIL() << "tensor " << t << " element " << mine - got[t].begin() << ": " << *mine
           << ", expected " << *theirs;
  }
}

TEST(ThcJob, WorkersShareNormsAndServersAddIntegers) {
  ExpectEqual(TheJob().Run(kAllPush), Expected(kAllPush, /*stores_sums=*/false));
}

TEST(ThcJob, WithoutAnOptimizerTheAnswerIsTheSum) {
  ExpectEqual(TheJob().Run(kAllPush, /*stores_sums=*/true),
              Expected(kAllPush, /*stores_sums=*/true));
}

TEST(ThcJob, WithoutAnOptimizerEachWorkerDecodesTheIntegersToTheSameBits) {
  InProcessCluster cluster(Options());
  std::map<uint32_t, Weights> pulled;
  Mutex mutex;
  cluster.RunWorkers([&](KVStore& store) {
    Weights weights = TheJob().FirstWeights();
    const std::vector<InitTensor> tensors = TheJob().Tensors(weights);
    ASSERT_STATUS_OK(store.Init(tensors));
    for (size_t t = 0; t < tensors.size(); ++t) {
      ASSERT_STATUS_OK(store.Push(tensors[t].key, GradientOf(t, 0, store.rank()), 0));
      ASSERT_STATUS_OK(store.Pull(tensors[t].key, weights[t], 0));
    }
    // Norms of seven blocks; five headers, seven scales, and a byte for each padded element.
    EXPECT_EQ(store.totals().bytes_pulled,
              7u * 4 + 5 * 36 + 7 * 4 + (4 * 4096 + 2048) + 4096 + 128);
    const MutexLock lock(&mutex);
    pulled[store.rank()] = weights;
  });
  ExpectEqual(pulled[0], Expected({kAllPush[0]}, /*stores_sums=*/true));
  EXPECT_TRUE(pulled[0] == pulled[1]);
}

TEST(ThcJob, ScalesMayBeThoseOfTheRoundBefore) {
  Plan plan = kAllPush;
  plan.insert(plan.end(), {{Does::kPush, Does::kNothing},
                           {Does::kNothing, Does::kNothing},
                           {Does::kPush, Does::kPush},
                           {Does::kPush, Does::kLeave},
                           {Does::kPush, Does::kLeave}});
  ClusterOptions options = Options();
  options.store.compression = "thc:scale=previous";
  for (const bool stores_sums : {false, true}) {
    ExpectEqual(TheJob().Run(options, plan, stores_sums),
                Expected(plan, stores_sums, options.store.compression));
  }
  EXPECT_FALSE(Expected(plan, true, "thc") == Expected(plan, true, options.store.compression));
}

TEST(ThcJob, AWorkerMayPushNothingAndAllMay) {
  Plan plan = kAllPush;
  plan[1] = {Does::kPush, Does::kNothing};
  plan[2] = {Does::kNothing, Does::kNothing};
  ExpectEqual(TheJob().Run(plan), Expected(plan, /*stores_sums=*/false));
}

TEST(ThcJob, GoesOnWithoutAWorkerThatLeaves) {
  Plan plan = kAllPush;
  for (size_t round = 2; round < plan.size(); ++round) plan[round][1] = Does::kLeave;
  ExpectEqual(TheJob().Run(plan), Expected(plan, /*stores_sums=*/false));
}

TEST(ThcJob, LostRepeatedAndDelayedMessagesChangeNothing) {
  ClusterOptions options = Options();
  const Weights undisturbed = TheJob().Run(options, kAllPush);
  options.worker_faults = {.seed = 12, .drop = 0.05, .duplicate = 0.1, .reorder = 0.1};
  options.store.retry_interval = absl::Milliseconds(20);
  ExpectEqual(TheJob().Run(options, kAllPush), undisturbed);
}

TEST(ThcJob, NeitherServersNorCoalescingNorChecksumsChangeTheBits) {
  const Weights weights = TheJob().Run(kAllPush);
  ClusterOptions options = Options();
  options.servers = 3;
  options.shard_threads = 2;
  options.store.coalesce = false;
  options.store.checksums = false;
  ExpectEqual(TheJob().Run(options, kAllPush), weights);
}

// The change of the weights by 4 bits, too: what workers see follows the weights that come in fp32.
TEST(ThcJob, PullsMayTakeTheChangeByThcAsWell) {
  ClusterOptions options = Options();
  options.store.pull_compression = "thc";
  options.store.fixed_pull_threshold_bytes = 0;
  const Weights seen = TheJob().Run(options, kAllPush), first = TheJob().FirstWeights();
  const Weights wanted = Expected(kAllPush, /*stores_sums=*/false);
  double off2 = 0, moved2 = 0;
  for (size_t t = 0; t < seen.size(); ++t) {
    for (size_t i = 0; i < seen[t].size(); ++i) {
      off2 += std::pow(double{seen[t][i]} - double{wanted[t][i]}, 2);
      moved2 += std::pow(double{wanted[t][i]} - double{first[t][i]}, 2);
    }
  }
  EXPECT_GT(off2, 0) << "the pulls were not compressed";
  EXPECT_LT(off2, 0.02 * moved2);
}

// The squared distance of the weights from those that gradients in fp64 lead to.
double OffDense(const Weights& weights, size_t rounds) {
  const Weights first = TheJob().FirstWeights();
  double off2 = 0;
  for (size_t t = 0; t < first.size(); ++t) {
    std::vector<double> dense(first[t].begin(), first[t].end());
    for (size_t round = 0; round < rounds; ++round) {
      for (uint32_t worker = 0; worker < kWorkers; ++worker) {
        const std::vector<float> gradient = GradientOf(t, round, worker);
        for (size_t i = 0; i < dense.size(); ++i) {
          dense[i] -= double{kRate * kGradScale / kWorkers} * double{gradient[i]};
        }
      }
    }
    for (size_t i = 0; i < dense.size(); ++i) off2 += std::pow(double{weights[t][i]} - dense[i], 2);
  }
  return off2;
}

// A store counts its own rounds, so the second half of a job that is cut has other random numbers
// than the job that runs through.
TEST(ThcJob, ResidualsAreSavedAndTakenUpAgain) {
  const Checkpoint half = TheJob().Train(0, 2, nullptr);
  Checkpoint forgotten = half;
  forgotten.residuals = TheJob().Train(0, 0, nullptr).residuals;
  EXPECT_LT(OffDense(TheJob().Train(2, 4, &half).weights, 4),
            0.8 * OffDense(TheJob().Train(2, 4, &forgotten).weights, 4));
}

TEST(ThcJob, PushesHalfAByteAndCountsTheNorms) {
  InProcessCluster cluster(Options());
  cluster.RunWorkers([&](KVStore& store) {
    Weights weights = TheJob().FirstWeights();
    const std::vector<InitTensor> tensors = TheJob().Tensors(weights);
    ASSERT_STATUS_OK(store.Init(tensors));
    ASSERT_STATUS_OK(store.SetOptimizer(Sgd(kRate)));
    ASSERT_STATUS_OK(store.Push(tensors[0].key, GradientOf(0, 0, store.rank()), 0));
    ASSERT_STATUS_OK(store.Wait());
    // Norms of five blocks; then three headers, five scales, and codes of the padded blocks.
    const uint64_t norms = 5 * 4, payloads = 3 * 52 + 5 * 4 + (4 * 4096 + 2048) / 2;
    const PushCounts counts = store.push_counts(tensors[0].key);
    EXPECT_EQ(counts.elements, 18'000u);
    EXPECT_EQ(counts.elements_sent, 18'000u);
    EXPECT_EQ(counts.payload_bytes, norms + payloads);
    EXPECT_EQ(store.totals().bytes_pushed, counts.payload_bytes);
    EXPECT_GT(counts.input_norm2, 0);
    EXPECT_LT(counts.CompressionError(), 0.05);
  });
}

TEST(ThcJob, AGradientThatCannotBeSentIsRefusedByName) {
  ClusterOptions options = Options();
  options.job_fails = true;
  options.workers = 1;
  InProcessCluster(options).RunWorkers([&](KVStore& store) {
    Weights weights = TheJob().FirstWeights();
    const std::vector<InitTensor> tensors = TheJob().Tensors(weights);
    ASSERT_STATUS_OK(store.Init(tensors));
    ASSERT_STATUS_OK(store.SetOptimizer(Sgd(kRate)));
    std::vector<float> gradient = GradientOf(0, 0, 0);
    gradient[9000] = 0x1p120f;
    absl::Status status = store.Push(tensors[0].key, gradient, 0);
    if (status.ok()) status = store.Wait();
    EXPECT_THAT(std::string(status.message()),
                AllOf(HasSubstr("key s:w0"), HasSubstr("partition 1"),
                      HasSubstr("gradient element 808 of 8192"), HasSubstr("exceeds")));
  });
}

}  // namespace
}  // namespace slimps
