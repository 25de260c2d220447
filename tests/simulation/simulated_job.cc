// SPDX-License-Identifier: Apache-2.0
#include "tests/simulation/simulated_job.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstdint>
#include <map>
#include <memory>
#include <numeric>
#include <random>
#include <span>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "proto/base/awaited.h"
#include "proto/base/thread.h"
#include "proto/net/testing/fault_injection.h"
#include "tests/cluster/codec_reference.h"
#include "tests/cluster/in_process_cluster.h"

namespace slimps {
namespace {

constexpr size_t kPartitionElements = 100;
constexpr int kPreSteps = 4;
constexpr absl::Duration kPatience = absl::Minutes(5);
constexpr float kLearningRate = 0.5f;  // a power of two, so that the fold's steps are exact

using Weights = std::vector<std::vector<float>>;  // by tensor
using Draws = std::mt19937_64;

void Check(const absl::Status& status, absl::string_view what) {
  if (!status.ok()) simulation::Fail(absl::StrCat(what, ": ", status.ToString()));
}

std::vector<float> Normal(size_t elements, uint64_t seed) {
  Draws random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> values(elements);
  for (float& value : values) value = normal(random);
  return values;
}

template <typename T>
const T& OneOf(const std::vector<T>& choices, Draws* random) {
  return choices[(*random)() % choices.size()];
}

bool OneIn(uint64_t n, Draws* random) { return (*random)() % n == 0; }

// What a seed chooses. Drawn before the run begins.
struct Setting {
  std::string codec;
  wire::StoreMode mode = wire::DIST_SYNC;
  bool optimizer = true;
  int rounds = 0;
  std::vector<ReferenceTensor> tensors;
  FaultPlan faults;
  absl::Duration latency, retry_interval;
  size_t shard_threads = 1;
  bool awaits_acknowledgements = true;  // in some rounds
  bool measured = false;  // thresholds; the rounds after that follow a decision about virtual times
  // By round, from 0, which Init gives. Without the rounds behind a decision.
  std::vector<Weights> expected;

  // Nothing is lost, so nothing need be sent twice: the job ends before the first retry.
  bool loses_nothing() const { return faults.drop + faults.truncate + faults.delay == 0; }

  std::string name() const {
    return absl::StrCat(codec, mode == wire::DIST_SYNC ? " sync" : " async",
                        optimizer ? "" : " sums", ", ", tensors.size(), " tensors, ", rounds,
                        " rounds, faults ", faults.drop, "/", faults.duplicate, "/",
                        faults.truncate, "/", faults.reorder, "/", faults.delay, ", latency ",
                        absl::FormatDuration(latency), ", retries after ",
                        absl::FormatDuration(retry_interval), measured ? ", measured" : "");
  }
};

std::vector<float> GradientOf(const ReferenceTensor& tensor, uint32_t worker, int round) {
  return Normal(tensor.value.size(),
                1'000'003 * static_cast<uint64_t>(round) + 1009 * worker + tensor.value.size());
}

std::vector<ReferenceTensor> DrawTensors(Draws* random) {
  std::vector<ReferenceTensor> tensors;
  const size_t count = 1 + (*random)() % 4;
  for (size_t i = 0; i < count; ++i) {
    const size_t row = 1 + (*random)() % 8;
    const size_t rows = 1 + (*random)() % (OneIn(3, random) ? 60 : 12);
    tensors.push_back({.key = Key(absl::StrCat("t", i)),
                       .dtype = OneIn(4, random) ? wire::FLOAT16 : wire::FLOAT32,
                       .layer = wire::DENSE,
                       .value = Normal(row * rows, 77 + i),
                       .row_elements = static_cast<int64_t>(row)});
  }
  return tensors;
}

FaultPlan DrawFaults(Draws* random) {
  FaultPlan plan{.seed = (*random)()};
  if (OneIn(4, random)) return plan;  // none
  const double* const loses[] = {&plan.drop, &plan.truncate, &plan.delay};
  const bool lossless = OneIn(4, random);
  for (double* const fault :
       {&plan.drop, &plan.duplicate, &plan.truncate, &plan.reorder, &plan.delay}) {
    if (lossless && std::ranges::find(loses, fault) != std::end(loses)) continue;
    if (OneIn(2, random)) *fault = OneOf<double>({0.01, 0.05, lossless ? 0.5 : 0.15}, random);
  }
  plan.delay_messages = 1 + (*random)() % 8;
  return plan;
}

// The fold: every round of every worker, once, by one thread.
std::vector<Weights> Fold(const Setting& setting, uint32_t workers) {
  const int known = setting.measured ? kPreSteps : setting.rounds;
  std::vector<Weights> expected(static_cast<size_t>(known) + 1);
  for (const ReferenceTensor& tensor : setting.tensors) {
    ReferenceTensorJob fold(tensor, {.compression = setting.codec,
                                     .partition_elements = kPartitionElements,
                                     .workers = workers,
                                     .learning_rate = setting.optimizer ? kLearningRate : 0,
                                     .mode = setting.mode,
                                     .measured_rounds = setting.measured ? kPreSteps : 0ull});
    expected[0].push_back(fold.Pulled());
    for (int round = 1; round <= known; ++round) {
      Weights gradients;
      for (uint32_t worker = 0; worker < workers; ++worker) {
        gradients.push_back(GradientOf(tensor, worker, round));
      }
      fold.Round(gradients);
      expected[static_cast<size_t>(round)].push_back(fold.Pulled());
    }
  }
  return expected;
}

// What is lost is sent again many rounds later, when others have gone on.
void HardlyLose(Setting* setting) {
  setting->faults = {.seed = setting->faults.seed, .drop = 0.004};
  setting->retry_interval = absl::Seconds(5);
  setting->latency = absl::ZeroDuration();
  setting->tensors.erase(setting->tensors.begin() + 1, setting->tensors.end());
  setting->rounds += 24;
  setting->awaits_acknowledgements = false;
}

Setting Draw(const SimulatedJob& job) {
  Draws random(job.seed);
  Setting setting;
  setting.codec = OneOf<std::string>({"none", "none", "fp16", "1bit", "2bit", "topk:ratio=0.1",
                                      "qsgd:bits=4", "dgc:ratio=0.1,warmup=1", "signsgd", "drive"},
                                     &random);
  const bool votes = setting.codec == "signsgd";
  setting.mode = !votes && OneIn(4, &random) ? wire::DIST_ASYNC : wire::DIST_SYNC;
  setting.optimizer = setting.mode == wire::DIST_ASYNC || !OneIn(3, &random);
  setting.measured = setting.mode == wire::DIST_SYNC && OneIn(5, &random);
  setting.rounds = (setting.measured ? kPreSteps + 1 : 2) + static_cast<int>(random() % 10);
  if (OneIn(4, &random)) setting.rounds += 16;
  setting.tensors = DrawTensors(&random);
  setting.faults = DrawFaults(&random);
  setting.latency = OneOf<absl::Duration>(
      {absl::ZeroDuration(), absl::ZeroDuration(), absl::Milliseconds(1), absl::Milliseconds(50)},
      &random);
  setting.shard_threads = 1 + random() % 3;
  setting.retry_interval =
      setting.loses_nothing()
          ? kPatience
          : OneOf<absl::Duration>({absl::Milliseconds(100), absl::Milliseconds(200),
                                   absl::Seconds(1), absl::Seconds(5)},
                                  &random);
  if (OneIn(8, &random)) HardlyLose(&setting);
  setting.expected = Fold(setting, job.workers);
  return setting;
}

// By tensor and round.
using KnownWeights = std::map<std::pair<size_t, int>, std::vector<float>>;

// One worker's part. Workers share `weights`: one thread of a run goes on at a time.
class Worker final {
 public:
  Worker(KVStore* store, const Setting& setting, uint64_t seed, KnownWeights* weights)
      : store_(store),
        setting_(setting),
        seed_(seed),
        weights_(weights),
        random_(seed + 31 * store->rank()),
        late_(setting.tensors.size()) {}

  void Run() {
    std::vector<InitTensor> init;
    for (const ReferenceTensor& tensor : setting_.tensors) {
      init.push_back({.key = tensor.key,
                      .shape = tensor.shape(),
                      .value = tensor.value,
                      .layer = tensor.layer,
                      .dtype = tensor.dtype});
      pulled_.emplace_back(tensor.value.size());
    }
    Check(store_->Init(init), "init");
    if (setting_.optimizer) Check(store_->SetOptimizer(Sgd()), "set_optimizer");
    Check(store_->Barrier(), "barrier");
    for (int round = 1; round <= setting_.rounds; ++round) {
      setting_.mode == wire::DIST_SYNC ? Round(round) : Turns(round);
    }
  }

 private:
  struct LatePull {
    int round = 0;
    Awaited awaited;
    std::vector<float> values;
  };
  using LatePulls = std::vector<std::unique_ptr<LatePull>>;  // by tensor

  static wire::OptimizerSpec Sgd() {
    wire::OptimizerSpec spec;
    spec.set_kind(wire::OptimizerSpec::SGD);
    spec.set_learning_rate(kLearningRate);
    spec.set_average(true);
    return spec;
  }

  std::vector<size_t> InOrderOf(Draws* random) {
    std::vector<size_t> order(setting_.tensors.size());
    std::iota(order.begin(), order.end(), size_t{0});
    std::shuffle(order.begin(), order.end(), *random);
    return order;
  }
  int AnyPriority() { return static_cast<int>(random_() % 5) - 2; }

  // Pushes each tensor by any call, and pulls each at any time from then on, or in a later round. A
  // pull waits for the other workers' pushes, so it is waited for at once only if all push in one
  // order.
  void Round(int round) {
    // Behind kPreSteps a measured threshold is decided, which waits for all workers' pushes.
    const bool last = round == setting_.rounds || round == kPreSteps;
    if (!last && OneIn(4, &random_)) {
      AwaitPulls(&late_);  // a pull may be overtaken by one round of its worker's, not by two
      for (const size_t i : InOrderOf(&random_)) Push(i, round);
      return;
    }
    Draws of_round(seed_ + static_cast<uint64_t>(round));
    const bool waits = OneIn(2, &of_round);
    LatePulls pulls(setting_.tensors.size());
    pulls.swap(late_);
    if (!waits && OneIn(3, &random_)) {
      PushByTwoThreads(round);
      AwaitPulls(&pulls);
      for (const size_t i : InOrderOf(&random_)) Pull(i, round);
      return;
    }
    for (const size_t i : waits ? InOrderOf(&of_round) : InOrderOf(&random_)) {
      if (waits && OneIn(3, &random_)) {
        PushAndPull(i, round);
        continue;
      }
      Push(i, round);
      if (waits && OneIn(2, &random_)) {
        Pull(i, round);
      } else {
        late_[i] = std::make_unique<LatePull>();
        late_[i]->round = round;
        late_[i]->values.resize(pulled_[i].size());
        store_->PullAsync(setting_.tensors[i].key, late_[i]->values, AnyPriority(),
                          late_[i]->awaited.Callback());
      }
      if (setting_.awaits_acknowledgements && OneIn(8, &random_)) Check(store_->Wait(), "wait");
    }
    AwaitPulls(&pulls);
    if (last || OneIn(2, &random_)) AwaitPulls(&late_);
    if (OneIn(4, &random_)) simulation::Sleep(absl::Milliseconds(random_() % 50));
  }

  void AwaitPulls(LatePulls* pulls) {
    for (size_t i = 0; i < pulls->size(); ++i) {
      const std::unique_ptr<LatePull> pull = std::move((*pulls)[i]);
      if (pull == nullptr) continue;
      Check(pull->awaited.Await(), "pull");
      Compare(i, pull->round, pull->values);
    }
  }

  void PushByTwoThreads(int round) {
    const size_t half = setting_.tensors.size() / 2;
    const auto push = [&](size_t first, size_t last) {
      for (size_t i = first; i < last; ++i) Push(i, round);
    };
    Thread other("pusher", [&] { push(0, half); });
    push(half, setting_.tensors.size());
    other.Join();
  }

  void PushAndPull(size_t i, int round) {
    const ReferenceTensor& tensor = setting_.tensors[i];
    simulation::Note(absl::StrCat("pushes and pulls t", i, ", round ", round));
    const std::vector<float> gradient = GradientOf(tensor, store_->rank(), round);
    Check(store_->PushPull(tensor.key, gradient, pulled_[i], AnyPriority()), "pushpull");
    Compare(i, round, pulled_[i]);
  }

  void Push(size_t i, int round) {
    const ReferenceTensor& tensor = setting_.tensors[i];
    simulation::Note(absl::StrCat("pushes t", i, ", round ", round));
    const std::vector<float> gradient = GradientOf(tensor, store_->rank(), round);
    if (OneIn(2, &random_)) {
      return Check(store_->Push(tensor.key, gradient, AnyPriority()), "push");
    }
    Awaited returned;
    Check(store_->PushLent(tensor.key, {{.values = gradient, .returned = returned.Callback()}},
                           AnyPriority()),
          "push");
    Check(returned.Await(), "gradient on loan");
  }

  void Pull(size_t i, int round) {
    Check(store_->Pull(setting_.tensors[i].key, pulled_[i], AnyPriority()), "pull");
    Compare(i, round, pulled_[i]);
  }

  // Without rounds, pushes count in the order of their arrival: the workers take turns.
  void Turns(int round) {
    for (uint32_t turn = 0; turn < store_->num_workers(); ++turn) {
      if (turn == store_->rank()) {
        for (const size_t i : InOrderOf(&random_)) {
          const std::vector<float> gradient =
              GradientOf(setting_.tensors[i], store_->rank(), round);
          Check(store_->Push(setting_.tensors[i].key, gradient, AnyPriority()), "push");
        }
        Check(store_->Wait(), "wait");
      }
      Check(store_->Barrier(), "barrier");
    }
    for (const size_t i : InOrderOf(&random_)) Pull(i, round);
    Check(store_->Barrier(), "barrier");
  }

  void Compare(size_t i, int round, const std::vector<float>& got) {
    std::vector<float>& expected = (*weights_)[{i, round}];
    if (expected.empty()) expected = got;  // behind a decision: all workers see the same
    const auto equal = [](float a, float b) {
      return std::bit_cast<uint32_t>(a) == std::bit_cast<uint32_t>(b);
    };
    const auto differ = std::mismatch(expected.begin(), expected.end(), got.begin(), equal);
    if (differ.first == expected.end()) return;
    simulation::Fail(absl::StrCat("weights differ from the fold: t", i, ", round ", round,
                                  ", worker ", store_->rank(), ", element ",
                                  differ.first - expected.begin(), " of ", got.size(),
                                  ": expected ", *differ.first, ", got ", *differ.second));
  }

  KVStore* const store_;
  const Setting& setting_;
  const uint64_t seed_;
  KnownWeights* const weights_;
  Draws random_;
  Weights pulled_;
  LatePulls late_;
};

void RunCluster(const SimulatedJob& job, const Setting& setting) {
  simulation::Note(setting.name());
  ClusterOptions options{.workers = job.workers, .servers = job.servers, .mode = setting.mode};
  options.shard_threads = setting.shard_threads;
  options.store.compression = setting.codec;
  if (!setting.measured) options.store.fixed_threshold_bytes = 0;
  options.store.pre_steps = kPreSteps;
  options.store.retry_interval = setting.retry_interval;
  options.store.timeout = absl::Minutes(10);
  options.store.encode_threads = 1;
  options.store.partition_bytes = kPartitionElements * sizeof(float);
  options.worker_transport.emulate_link_latency = setting.latency;
  const auto ceased = std::make_shared<std::atomic<bool>>(false);
  std::atomic<uint32_t> trained{0};
  KnownWeights weights;
  for (size_t round = 0; round < setting.expected.size(); ++round) {
    for (size_t i = 0; i < setting.tensors.size(); ++i) {
      weights[{i, static_cast<int>(round)}] = setting.expected[round][i];
    }
  }
  options.worker_faults = options.server_faults = setting.faults;
  options.worker_faults.ceased = options.server_faults.ceased = ceased;
  options.server_faults.seed += 1000;
  InProcessCluster(options).RunWorkers([&](KVStore& store) {
    Worker(&store, setting, job.seed, &weights).Run();
    // A goodbye is repeated a few times only, so a bad network must get better before.
    const double worst = std::max({setting.faults.drop, setting.faults.truncate});
    if (++trained == job.workers && worst > 0.05) *ceased = true;
  });
  if (setting.loses_nothing() && simulation::Now() > kPatience) {
    simulation::Fail("nothing was lost, and yet something had to be sent again");
  }
  if (testing::UnitTest::GetInstance()->ad_hoc_test_result().Failed()) {
    simulation::Fail("a node has ended with an error (see above)");
  }
}

}  // namespace

JobResult RunSimulatedJob(const SimulatedJob& job) {
  const Setting setting = Draw(job);
  const simulation::Outcome outcome =
      simulation::Run({.seed = job.seed, .trace = job.trace}, [&] { RunCluster(job, setting); });
  return {.setting = setting.name(), .outcome = outcome};
}

}  // namespace slimps
