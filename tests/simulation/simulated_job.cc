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
#include <set>
#include <span>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "proto/base/awaited.h"
#include "proto/base/simulation/runner.h"
#include "proto/base/thread.h"
#include "tests/simulation/job_plan.h"
#include "tests/simulation/round_fold.h"
#include "tests/simulation/simulated_cluster.h"

namespace slimps {
namespace {

constexpr uint64_t kStepsOfWorker = 625'000;  // at most, on average: Options' bound for 32

// Thrown where a call fails because the job is lost.
struct JobLost {};

// By tensor and round.
using KnownWeights = std::map<std::pair<size_t, int>, std::vector<float>>;

// One process of a worker. Workers share `weights` and `fold`: one thread of a run goes on at a
// time.
class Worker final {
 public:
  Worker(KVStore* store, SimulatedCluster* cluster, const JobPlan& plan, uint64_t seed,
         KnownWeights* weights, RoundFold* fold)
      : store_(store),
        cluster_(cluster),
        plan_(plan),
        seed_(seed),
        weights_(weights),
        fold_(fold),
        random_(seed + 31 * store->rank()),
        late_(plan.tensors.size()),
        former_(plan.tensors.size()) {}

  ~Worker() {
    for (const LatePulls* pulls : {&former_, &late_}) {
      for (const auto& pull : *pulls) {
        if (pull != nullptr) pull->awaited.Await().IgnoreError();
      }
    }
  }

  void Run() {
    std::vector<InitTensor> init;
    for (const ReferenceTensor& tensor : plan_.tensors) {
      init.push_back({.key = tensor.key,
                      .shape = tensor.shape(),
                      .value = tensor.value,
                      .layer = tensor.layer,
                      .dtype = tensor.dtype});
      pulled_.emplace_back(tensor.value.size());
    }
    if (plan_.inits_one_by_one) {
      for (const InitTensor& tensor : init) Check(store_->Init({tensor}), "init");
    } else {
      Check(store_->Init(init), "init");
    }
    if (plan_.optimizer) Check(store_->SetOptimizer(Sgd()), "set_optimizer");
    for (int i = 0; i < plan_.first_barriers; ++i) Check(store_->Barrier(), "barrier");
    const int first = static_cast<int>(store_->former_rounds()) + 1;
    cluster_->BeginTraining(/*returns=*/first > 1);
    if (fold_ != nullptr) fold_->Begin(store_->rank(), first);
    for (int round = first; round <= plan_.rounds; ++round) {
      plan_.mode == wire::DIST_SYNC ? Round(round) : Turns(round);
    }
  }

 private:
  struct LatePull {
    int round = 0;
    Awaited awaited;
    std::vector<float> values;
  };
  using LatePulls = std::vector<std::unique_ptr<LatePull>>;  // by tensor

  void Check(const absl::Status& status, absl::string_view what) {
    if (status.ok()) return;
    if (cluster_->IsLoss(status)) throw JobLost();
    cluster_->EndIfFenced(wire::WORKER, store_->rank());
    simulation::Fail(absl::StrCat(what, ": ", status.ToString()));
  }

  wire::OptimizerSpec Sgd() const {
    wire::OptimizerSpec spec;
    spec.set_kind(wire::OptimizerSpec::SGD);
    spec.set_learning_rate(kLearningRate);
    spec.set_momentum(plan_.momentum);
    spec.set_average(plan_.average());
    return spec;
  }

  std::vector<size_t> InOrderOf(Draws* random) {
    std::vector<size_t> order(plan_.tensors.size());
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
    const bool last = round == plan_.rounds || round == kPreSteps;
    if (!last && OneIn(4, &random_)) {
      AwaitPulls(&late_);  // a pull may be overtaken by one round of its worker's, not by two
      for (const size_t i : InOrderOf(&random_)) Push(i, round);
      return;
    }
    Draws of_round(seed_ + static_cast<uint64_t>(round));
    const bool waits = OneIn(2, &of_round);
    former_.swap(late_);
    if (!waits && OneIn(3, &random_)) {
      PushByTwoThreads(round);
      AwaitPulls(&former_);
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
        store_->PullAsync(plan_.tensors[i].key, late_[i]->values, AnyPriority(),
                          late_[i]->awaited.Callback());
      }
      if (plan_.awaits_acknowledgements && OneIn(8, &random_)) Check(store_->Wait(), "wait");
    }
    AwaitPulls(&former_);
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
    const size_t half = plan_.tensors.size() / 2;
    bool lost = false;
    const auto push = [&](size_t first, size_t last) {
      try {
        for (size_t i = first; i < last; ++i) Push(i, round);
      } catch (const JobLost&) {
        lost = true;
      }
    };
    Thread other("pusher", [&] { push(0, half); });
    push(half, plan_.tensors.size());
    other.Join();
    if (lost) throw JobLost();
  }

  void PushAndPull(size_t i, int round) {
    const ReferenceTensor& tensor = plan_.tensors[i];
    simulation::Note(absl::StrCat("pushes and pulls t", i, ", round ", round));
    const std::vector<float> gradient = GradientOf(tensor, store_->rank(), round);
    Check(store_->PushPull(tensor.key, gradient, pulled_[i], AnyPriority()), "pushpull");
    Compare(i, round, pulled_[i]);
  }

  void Push(size_t i, int round) {
    const ReferenceTensor& tensor = plan_.tensors[i];
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
    Check(store_->Pull(plan_.tensors[i].key, pulled_[i], AnyPriority()), "pull");
    Compare(i, round, pulled_[i]);
  }

  // Without rounds, pushes count in the order of their arrival: the workers take turns.
  void Turns(int round) {
    for (uint32_t turn = 0; turn < store_->num_workers(); ++turn) {
      if (turn == store_->rank()) {
        for (const size_t i : InOrderOf(&random_)) {
          const std::vector<float> gradient = GradientOf(plan_.tensors[i], store_->rank(), round);
          Check(store_->Push(plan_.tensors[i].key, gradient, AnyPriority()), "push");
        }
        Check(store_->Wait(), "wait");
      }
      Check(store_->Barrier(), "barrier");
    }
    for (const size_t i : InOrderOf(&random_)) Pull(i, round);
    Check(store_->Barrier(), "barrier");
  }

  bool IsBehindDecision(int round) const { return plan_.measured && round > kPreSteps; }

  const std::vector<float>& Expected(size_t i, int round, const std::vector<float>& got) {
    if (fold_ != nullptr && !IsBehindDecision(round)) {
      return fold_->WeightsOf(i, round, store_->rank());
    }
    std::vector<float>& expected = (*weights_)[{i, round}];
    if (expected.empty()) expected = got;  // behind a decision: all workers see the same
    return expected;
  }

  void Compare(size_t i, int round, const std::vector<float>& got) {
    const std::vector<float>& expected = Expected(i, round, got);
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
  SimulatedCluster* const cluster_;
  const JobPlan& plan_;
  const uint64_t seed_;
  KnownWeights* const weights_;
  RoundFold* const fold_;  // nullptr: no worker crashes
  Draws random_;
  Weights pulled_;
  LatePulls late_, former_;  // of this round and of those before
};

// Fails the run if more gradients are staged than fit (worker/push/staging.cc).
void CheckStaging(absl::string_view note, const JobPlan& plan) {
  size_t bytes = 0;
  if (plan.troubles.small_room != SmallRoom::kWorkers || !absl::ConsumePrefix(&note, "stages ") ||
      !absl::SimpleAtoi(note, &bytes)) {
    return;
  }
  const auto elements = [](const ReferenceTensor& tensor) { return tensor.value.size(); };
  const size_t largest = std::ranges::max(plan.tensors, {}, elements).value.size();
  if (bytes <= largest * sizeof(float)) return;
  simulation::Fail(
      absl::StrCat("gradients of ", bytes, " bytes are staged, where one tensor fits at a time"));
}

// `fold` may be null.
std::string RunCluster(const SimulatedJob& job, const JobPlan& plan, RoundFold* fold) {
  simulation::Note(plan.name());
  SimulatedClusterOptions options{
      .workers = job.workers, .servers = job.servers, .mode = plan.mode};
  options.shard_threads = plan.shard_threads;
  options.latency = plan.latency;
  options.crashes = plan.crashes;
  options.troubles = plan.troubles;
  options.folder = job.folder;
  for (const ReferenceTensor& tensor : plan.tensors) {
    options.round_bytes += tensor.value.size() * sizeof(float);
  }
  if (plan.troubles.small_room == SmallRoom::kWorkers) {
    options.store.staging_bytes = 1;  // a tensor fits alone
  }
  options.store.compression = plan.codec;
  if (!plan.measured) options.store.fixed_threshold_bytes = 0;
  options.store.pre_steps = kPreSteps;
  options.store.retry_interval = plan.retry_interval;
  options.store.timeout = absl::Minutes(10);
  options.store.encode_threads = 1;
  options.store.partition_bytes = kPartitionElements * sizeof(float);
  options.store.pull_compression = plan.pulls;
  if (plan.pulls != "none") options.store.fixed_pull_threshold_bytes = 0;
  const auto ceased = std::make_shared<std::atomic<bool>>(false);
  std::set<uint32_t> trained;  // workers
  KnownWeights weights;
  for (size_t round = 0; round < plan.expected.size(); ++round) {
    for (size_t i = 0; i < plan.tensors.size(); ++i) {
      weights[{i, static_cast<int>(round)}] = plan.expected[round][i];
    }
  }
  options.faults = plan.faults;
  options.faults.ceased = ceased;
  // Never freed: processes that have crashed still point to it.
  auto* const cluster = new SimulatedCluster(options);
  simulation::ObserveNotes([&plan, fold, cluster](absl::string_view note) {
    CheckStaging(note, plan);
    cluster->TakeNote(note);
    if (fold != nullptr) fold->TakeNote(note);
  });
  cluster->Run([&](KVStore& store) {
    Worker worker(&store, cluster, plan, job.seed, &weights, fold);
    try {
      worker.Run();
    } catch (const JobLost&) {
    }
    // A goodbye is repeated a few times only, so a bad network must get better before.
    const double worst = std::max({plan.faults.drop, plan.faults.truncate});
    trained.insert(store.rank());
    if (trained.size() == job.workers && worst > 0.05) *ceased = true;
  });
  if (plan.loses_nothing() && simulation::Now() > kPatience) {
    simulation::Fail("nothing was lost, and yet something had to be sent again");
  }
  return cluster->faults().ToString();
}

}  // namespace

JobResult RunSimulatedJob(const SimulatedJob& job) {
  const JobPlan plan = DrawPlan(job.seed, job.workers, job.servers);
  std::string faults;
  std::unique_ptr<RoundFold> fold;
  if (!plan.crashes.workers.empty()) fold = std::make_unique<RoundFold>(plan, job.workers);
  simulation::Options options{.seed = job.seed, .trace = job.trace};
  options.most_steps = std::max(options.most_steps, kStepsOfWorker * job.workers);
  const simulation::Outcome outcome =
      simulation::Run(options, [&] { faults = RunCluster(job, plan, fold.get()); });
  return {.setting = plan.name(), .outcome = outcome, .faults = faults};
}

}  // namespace slimps
