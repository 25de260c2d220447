// SPDX-License-Identifier: Apache-2.0
#include "tests/simulation/job_plan.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace slimps {
namespace {

// A job in which a node is away for long would do little but write snapshots.
constexpr absl::Duration kOftenestIfLong = absl::Milliseconds(50);

std::vector<float> Normal(size_t elements, uint64_t seed) {
  Draws random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> values(elements);
  for (float& value : values) value = normal(random);
  return values;
}

// Offsets the seed of what is drawn apart, so that all else of a seed's plan is as it was without.
constexpr uint64_t kApart = uint64_t{1} << 32;

constexpr int kManyBarriers = 70;

constexpr uint32_t kMostTurns = 128;  // in a job without rounds
// What is lost while its server talks is sent again after half a timeout. Of many workers one would
// lose something in each round, and a pull that waits for two of them would take the whole of it.
// So it may with fewer workers that push one tensor after the other for want of room.
constexpr uint32_t kMostThatLose = 128, kMostThatLoseInSmallRoom = 16;

template <typename T>
const T& OneOf(const std::vector<T>& choices, Draws* random) {
  return choices[(*random)() % choices.size()];
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

// Every round of every worker, once, by one thread.
std::vector<Weights> Fold(const JobPlan& plan, uint32_t workers) {
  const int known = plan.measured ? kPreSteps : plan.rounds;
  std::vector<Weights> expected(static_cast<size_t>(known) + 1);
  for (const ReferenceTensor& tensor : plan.tensors) {
    ReferenceTensorJob fold(tensor, FoldOptions(plan, tensor, workers));
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
void HardlyLose(JobPlan* plan) {
  plan->faults = {.seed = plan->faults.seed, .drop = 0.004};
  plan->retry_interval = absl::Seconds(5);
  plan->latency = absl::ZeroDuration();
  plan->tensors.erase(plan->tensors.begin() + 1, plan->tensors.end());
  plan->rounds += 24;
  plan->awaits_acknowledgements = false;
}

std::vector<CrashPlan::Crash> DrawCrashes(uint64_t most_deliveries, size_t most, Draws* random) {
  std::vector<CrashPlan::Crash> crashes((*random)() % (most + 1));
  for (CrashPlan::Crash& one : crashes) {
    one.deliveries = 1 + (*random)() % (1 + (*random)() % most_deliveries);
    one.after = absl::Microseconds((*random)() % (uint64_t{1} << ((*random)() % 13)));
    one.away = OneOf<absl::Duration>(
        {absl::ZeroDuration(), absl::Milliseconds(1), absl::Milliseconds(200), absl::Seconds(5)},
        random);
  }
  return crashes;
}

void DrawSnapshots(JobPlan* plan, Draws* random) {
  CrashPlan& crashes = plan->crashes;
  crashes.snapshot_every = OneOf<absl::Duration>(
      {absl::Milliseconds(5), absl::Milliseconds(50), absl::Milliseconds(500), absl::Seconds(30)},
      random);
  crashes.addresses =
      OneIn(2, random) ? CrashPlan::Addresses::kStay : CrashPlan::Addresses::kChange;
  if (plan->retry_interval == kPatience) {
    plan->retry_interval = absl::Seconds(5);
  } else {  // a job that waits for many retries would do little but write snapshots
    crashes.snapshot_every = std::max(crashes.snapshot_every, plan->retry_interval / 20);
  }
}

// A worker's process that takes its rank back waits until snapshots have what it says.
void CrashWorkers(JobPlan* plan, uint32_t workers, uint32_t servers, Draws* random) {
  CrashPlan& crashes = plan->crashes;
  if (!crashes.any()) DrawSnapshots(plan, random);
  crashes.snapshot_every =
      std::clamp<absl::Duration>(crashes.snapshot_every, kOftenestIfLong, absl::Seconds(1));
  crashes.workers.resize(workers);
  const uint64_t deliveries = 4 + 2 * servers * (static_cast<uint64_t>(plan->rounds) + 2);
  for (auto& of_worker : crashes.workers) {
    of_worker = DrawCrashes(deliveries, OneIn(3, random) ? 2 : 0, random);
    for (CrashPlan::Crash& one : of_worker) {
      if (OneIn(3, random)) one.away = absl::Seconds(30);
    }
  }
  if (OneIn(2, random)) crashes.worker_timeout = absl::Seconds(1);
}

// Shorter than the time after which a node counts as dead.
std::vector<Trouble> DrawOfEach(size_t nodes, uint64_t most_deliveries, Draws* random) {
  std::vector<Trouble> troubles(nodes);
  for (Trouble& one : troubles) {
    one.deliveries = 1 + (*random)() % most_deliveries;
    if (OneIn(2, random)) continue;
    one.lasts =
        OneOf<absl::Duration>({absl::Milliseconds(20), absl::Seconds(1), absl::Seconds(4)}, random);
  }
  return troubles;
}

// REQUIRES: what is lost is sent again soon.
void DrawTroubles(JobPlan* plan, uint32_t workers, uint32_t servers, Draws* random) {
  Troubles& troubles = plan->troubles;
  const uint64_t deliveries =
      2 * (static_cast<uint64_t>(plan->rounds) + 2) * std::max(workers, servers);
  if (OneIn(2, random)) {
    troubles.cut_servers = DrawOfEach(servers, deliveries, random);
    troubles.cut_workers = DrawOfEach(workers, deliveries, random);
  }
  if (!plan->crashes.any()) return;
  if (OneIn(3, random)) troubles.full_disks = DrawOfEach(servers, deliveries, random);
  if (OneIn(4, random)) troubles.write_takes = absl::Milliseconds(50);
}

// A node that counts as dead is started again if others of its kind are, by the plan's crashes.
void DrawStops(JobPlan* plan, uint32_t workers, uint32_t servers, Draws* random) {
  const uint64_t deliveries =
      2 * (static_cast<uint64_t>(plan->rounds) + 2) * std::max(workers, servers);
  const auto draw = [&](uint32_t nodes, bool may_die) {
    std::vector<Trouble> stops = DrawOfEach(nodes, deliveries, random);
    for (Trouble& one : stops) {
      if (may_die && OneIn(3, random)) one.lasts = kLongStop;
    }
    return stops;
  };
  plan->crashes.snapshot_every = std::max(plan->crashes.snapshot_every, kOftenestIfLong);
  Troubles& troubles = plan->troubles;
  troubles.stopped_servers = draw(servers, !plan->crashes.servers.empty());
  troubles.stopped_workers = draw(workers, !plan->crashes.workers.empty());
  troubles.stopped_scheduler = DrawOfEach(1, 6 * (workers + servers), random)[0];
}

// What a snapshot holds beside the weights is there, too: an optimizer's state, what workers see.
void Crash(JobPlan* plan, uint32_t workers, uint32_t servers, Draws* random) {
  size_t partitions = 0;
  for (const ReferenceTensor& tensor : plan->tensors) {
    partitions += (tensor.value.size() + kPartitionElements - 1) / kPartitionElements;
  }
  const auto rounds = static_cast<uint64_t>(plan->rounds);
  const uint64_t deliveries = 4 + 2 * workers * (rounds + 2) * (1 + partitions / servers);
  CrashPlan& crashes = plan->crashes;
  crashes.servers.resize(servers);
  for (auto& of_server : crashes.servers) of_server = DrawCrashes(deliveries, 2, random);
  crashes.scheduler = DrawCrashes(6 * (workers + servers), 2, random);
  DrawSnapshots(plan, random);
  if (!plan->optimizer || plan->measured) return;
  const bool has_momentum = plan->codec.starts_with("dgc");
  if (!has_momentum && OneIn(2, random)) plan->momentum = 0.5f;
  if (OneIn(2, random))
    plan->pulls = OneOf<std::string>({"1bit", "2bit", "topk:ratio=0.1"}, random);
}

}  // namespace

std::string JobPlan::name() const {
  std::string name =
      absl::StrCat(codec, mode == wire::DIST_SYNC ? " sync" : " async", optimizer ? "" : " sums",
                   ", ", tensors.size(), " tensors, ", rounds, " rounds, faults ", faults.drop, "/",
                   faults.duplicate, "/", faults.truncate, "/", faults.reorder, "/", faults.delay,
                   ", latency ", absl::FormatDuration(latency), ", retries after ",
                   absl::FormatDuration(retry_interval), measured ? ", measured" : "");
  if (momentum > 0) absl::StrAppend(&name, ", momentum");
  if (pulls != "none") absl::StrAppend(&name, ", pulls ", pulls);
  if (!troubles.cut_servers.empty()) absl::StrAppend(&name, ", links cut");
  if (inits_one_by_one) absl::StrAppend(&name, ", inits one by one");
  if (first_barriers > 1) absl::StrAppend(&name, ", ", first_barriers, " barriers");
  if (troubles.cut_together.has_value()) absl::StrAppend(&name, ", two cut together");
  if (!troubles.full_disks.empty()) absl::StrAppend(&name, ", disks full");
  if (troubles.write_takes > absl::ZeroDuration()) absl::StrAppend(&name, ", disks slow");
  if (!troubles.stopped_servers.empty()) absl::StrAppend(&name, ", nodes stopped");
  if (troubles.small_room == SmallRoom::kWorkers) absl::StrAppend(&name, ", workers small");
  if (troubles.small_room == SmallRoom::kServers) absl::StrAppend(&name, ", servers small");
  if (troubles.late_rosters) absl::StrAppend(&name, ", late rosters");
  if (!aimed_at.empty()) absl::StrAppend(&name, ", aimed at ", aimed_at);
  if (!crashes.any()) return name;
  absl::StrAppend(&name, ", snapshots every ", absl::FormatDuration(crashes.snapshot_every),
                  ", crashes of the scheduler ", crashes.scheduler.size(), ", of servers");
  for (const auto& of_server : crashes.servers) absl::StrAppend(&name, " ", of_server.size());
  if (crashes.workers.empty()) return name;
  absl::StrAppend(&name, ", of workers");
  for (const auto& of_worker : crashes.workers) absl::StrAppend(&name, " ", of_worker.size());
  if (crashes.worker_timeout > absl::ZeroDuration()) absl::StrAppend(&name, ", away after 1s");
  return name;
}

ReferenceOptions FoldOptions(const JobPlan& plan, const ReferenceTensor& tensor, uint32_t workers) {
  return {.compression = plan.codec,
          .partition_elements = kPartitionElements,
          .workers = workers,
          .learning_rate = plan.optimizer ? kLearningRate : 0,
          .average = plan.average(),
          .momentum = plan.momentum,
          .pulls = plan.pulls,
          .mode = plan.mode,
          .measured_rounds = plan.measured && IsProfiled(tensor, plan.tensors) ? kPreSteps : 0ull};
}

std::vector<float> GradientOf(const ReferenceTensor& tensor, uint32_t worker, int round) {
  return Normal(tensor.value.size(),
                1'000'003 * static_cast<uint64_t>(round) + 1009 * worker + tensor.value.size());
}

namespace {

JobPlan DrawJob(uint32_t workers, uint32_t servers, Draws* random) {
  JobPlan plan;
  plan.codec = OneOf<std::string>({"none", "none", "fp16", "1bit", "2bit", "topk:ratio=0.1",
                                   "qsgd:bits=4", "dgc:ratio=0.1,warmup=1", "signsgd", "drive"},
                                  random);
  const bool votes = plan.codec == "signsgd";
  // Without rounds, workers take turns, with a barrier each (simulated_job.cc).
  const bool in_turns = !votes && OneIn(4, random) && workers <= kMostTurns;
  plan.mode = in_turns ? wire::DIST_ASYNC : wire::DIST_SYNC;
  plan.optimizer = plan.mode == wire::DIST_ASYNC || !OneIn(3, random);
  plan.measured = plan.mode == wire::DIST_SYNC && OneIn(4, random);
  plan.rounds = (plan.measured ? kPreSteps + 1 : 2) + static_cast<int>((*random)() % 10);
  if (OneIn(4, random)) plan.rounds += 16;
  if (in_turns) plan.rounds = std::min(plan.rounds, static_cast<int>(kMostTurns / workers));
  plan.tensors = DrawTensors(random);
  plan.faults = DrawFaults(random);
  if (workers > kMostThatLose) plan.faults.drop = plan.faults.truncate = 0;
  plan.latency = OneOf<absl::Duration>(
      {absl::ZeroDuration(), absl::ZeroDuration(), absl::Milliseconds(1), absl::Milliseconds(50)},
      random);
  plan.shard_threads = 1 + (*random)() % 3;
  plan.retry_interval =
      plan.loses_nothing()
          ? kPatience
          : OneOf<absl::Duration>({absl::Milliseconds(100), absl::Milliseconds(200),
                                   absl::Seconds(1), absl::Seconds(5)},
                                  random);
  if (OneIn(8, random) && workers <= kMostThatLose) HardlyLose(&plan);
  if (plan.mode == wire::DIST_SYNC && OneIn(plan.loses_nothing() ? 4 : 2, random)) {
    Crash(&plan, workers, servers, random);
  }
  const bool may_crash = plan.mode == wire::DIST_SYNC && !plan.measured;
  if (may_crash && OneIn(2, random)) {
    CrashWorkers(&plan, workers, servers, random);
  } else {
    plan.expected = Fold(plan, workers);
  }
  if (!plan.loses_nothing()) DrawTroubles(&plan, workers, servers, random);
  plan.troubles.late_rosters = OneIn(4, random);
  if (plan.loses_nothing()) return plan;
  if (OneIn(3, random)) DrawStops(&plan, workers, servers, random);
  // A server that is full may wait for a worker that is gone (docs/decisions/recovery.md). Measured
  // pushes go one by one, so they may wait for each other, too.
  if (plan.measured || !plan.crashes.workers.empty() || OneIn(2, random)) return plan;
  // While a server refuses other pushes, one that was lost is sent again after minutes only.
  const bool loses =
      plan.faults.drop + plan.faults.truncate > 0 || !plan.troubles.cut_servers.empty();
  if (loses && workers > kMostThatLoseInSmallRoom) return plan;
  plan.troubles.small_room = loses || OneIn(3, random) ? SmallRoom::kWorkers : SmallRoom::kServers;
  return plan;
}

void DrawCutTogether(JobPlan* plan, uint32_t workers, uint32_t servers, Draws* random) {
  const uint64_t deliveries = 2 * (static_cast<uint64_t>(plan->rounds) + 2) * workers;
  plan->troubles.cut_together = CutTogether{.server = static_cast<uint32_t>((*random)() % servers),
                                            .worker = static_cast<uint32_t>((*random)() % workers),
                                            .deliveries = 1 + (*random)() % deliveries};
}

// Adds faults to those of a plan, so that some can meet the state.
void Worsen(JobPlan* plan, uint32_t workers, uint32_t servers, Draws* random) {
  CrashPlan& crashes = plan->crashes;
  Troubles& troubles = plan->troubles;
  if (crashes.scheduler.empty()) crashes.scheduler = DrawCrashes(9, 2, random);
  if (plan->measured && OneIn(2, random)) {
    CrashWorkers(plan, workers, servers, random);
    auto& of_worker = crashes.workers[(*random)() % workers];
    while (of_worker.empty()) of_worker = DrawCrashes(99, 2, random);
    plan->expected.clear();
  }
  if (plan->aimed_at == "replay") {
    for (auto& of_server : crashes.servers) {
      while (of_server.size() < 2) of_server = DrawCrashes(99, 2, random);
    }
    if (OneIn(2, random)) {
      crashes.snapshot_every = std::max<absl::Duration>(kOftenestIfLong, plan->retry_interval / 20);
    }
  }
  if (troubles.full_disks.empty() && OneIn(2, random)) {
    troubles.full_disks = DrawOfEach(servers, 99, random);
  }
  if (troubles.stopped_servers.empty() && OneIn(2, random)) {
    DrawStops(plan, workers, servers, random);
  }
}

// Lets faults wait for a state of the job that is seldom met by chance.
void Aim(JobPlan* plan, uint32_t workers, uint32_t servers, Draws* random) {
  std::vector<std::string> states = {"split_round", "rejoin", "snapshot"};
  if (!plan->crashes.servers.empty()) states.insert(states.end(), 3, "replay");
  if (plan->measured) states = {"pending_decision"};
  const std::string& state = plan->aimed_at = OneOf(states, random);
  Worsen(plan, workers, servers, random);
  const auto aim = [&state, random](std::vector<CrashPlan::Crash>* crashes, size_t spared) {
    for (size_t i = 0; i + spared < crashes->size(); ++i) {
      CrashPlan::Crash& one = (*crashes)[i];
      one.in_state = state;
      one.deliveries = (one.deliveries + 3) / 4;  // of many in the state, an early one
      one.after = OneIn(2, random) ? absl::ZeroDuration()
                                   : std::min<absl::Duration>(one.after, absl::Microseconds(50));
    }
  };
  // Somebody must be away first.
  const bool rejoins = state == "rejoin";
  for (auto& of_server : plan->crashes.servers) aim(&of_server, rejoins || state == "replay");
  for (auto& of_worker : plan->crashes.workers) aim(&of_worker, rejoins);
  aim(&plan->crashes.scheduler, 0);
  Troubles& troubles = plan->troubles;
  for (auto* of_nodes : {&troubles.cut_servers, &troubles.cut_workers, &troubles.full_disks,
                         &troubles.stopped_servers, &troubles.stopped_workers}) {
    for (Trouble& trouble : *of_nodes) trouble.in_state = state;
  }
  if (troubles.stopped_scheduler.has_value()) troubles.stopped_scheduler->in_state = state;
}

}  // namespace

JobPlan DrawPlan(uint64_t seed, uint32_t workers, uint32_t servers) {
  Draws random(seed);
  JobPlan plan = DrawJob(workers, servers, &random);
  if (plan.crashes.any() && (plan.measured || OneIn(2, &random))) {
    Aim(&plan, workers, servers, &random);
  }
  // A worker that counts as gone is left behind where there is a timeout for that.
  const bool waits = plan.crashes.any() && plan.crashes.worker_timeout == absl::ZeroDuration();
  Draws apart(seed + kApart);
  plan.inits_one_by_one = !plan.crashes.workers.empty() && OneIn(3, &apart);
  if (!plan.crashes.workers.empty() && OneIn(4, &apart)) plan.first_barriers = kManyBarriers;
  if (waits && OneIn(3, &apart)) DrawCutTogether(&plan, workers, servers, &apart);
  return plan;
}

}  // namespace slimps
