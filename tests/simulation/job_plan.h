// SPDX-License-Identifier: Apache-2.0
// What a seed chooses for a simulated job, and what its weights must be.
//
//   const JobPlan plan = DrawPlan(/*seed=*/7, /*workers=*/4, /*servers=*/2);
//
// Pure.
#ifndef SLIMPS_TESTS_SIMULATION_JOB_PLAN_H_
#define SLIMPS_TESTS_SIMULATION_JOB_PLAN_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "proto/net/testing/fault_injection.h"
#include "tests/cluster/codec_reference.h"

namespace slimps {

inline constexpr size_t kPartitionElements = 100;
inline constexpr int kPreSteps = 4;
inline constexpr absl::Duration kPatience = absl::Minutes(5);
inline constexpr absl::Duration kLongStop = absl::Seconds(40);  // others count the node as dead
inline constexpr float kLearningRate = 0.5f;  // a power of two, so that the fold's steps are exact

using Weights = std::vector<std::vector<float>>;  // by tensor
using Draws = std::mt19937_64;

inline bool OneIn(uint64_t n, Draws* random) { return (*random)() % n == 0; }

// When nodes crash.
struct CrashPlan {
  struct Crash {
    uint64_t deliveries = 0;  // crashes some time after so many messages have arrived
    absl::Duration after;
    absl::Duration away;
    std::string in_state = {};  // of FaultTable, which is then waited for; "": any
  };
  enum class Addresses { kStay, kChange };

  bool any() const { return !servers.empty() || !scheduler.empty() || !workers.empty(); }

  // The processes of one node crash one after another. The last entry is that of the first process.
  std::vector<std::vector<Crash>> servers, workers;  // by rank
  std::vector<Crash> scheduler;
  absl::Duration snapshot_every;
  absl::Duration worker_timeout;  // the job goes on without a worker after that; 0: it waits
  Addresses addresses = Addresses::kStay;  // of servers that are started again
};

// What a node suffers for a while, from the time when so many messages have come to it.
struct Trouble {
  uint64_t deliveries = 0;
  absl::Duration lasts;
  std::string in_state = {};  // of FaultTable, which is then waited for; "": any
};

// Where only the gradients that go on at once have room, so that others wait. If both lacked room,
// workers that push in different orders could wait for each other.
enum class SmallRoom { kNone, kWorkers, kServers };

// A server and a worker that nobody hears for so long that they count as gone. They hear nobody.
struct CutTogether {
  uint32_t server = 0, worker = 0;
  uint64_t deliveries = 0;  // to the server, after which it begins
};
inline constexpr absl::Duration kCutTogetherLasts = absl::Seconds(45);

struct Troubles {
  // By rank. A node that is cut off gets no message; a full disk takes nothing; a node that is
  // stopped does nothing, and may count as dead when it wakes.
  std::vector<Trouble> cut_servers, cut_workers, full_disks, stopped_servers, stopped_workers;
  std::optional<Trouble> stopped_scheduler;
  std::optional<CutTogether> cut_together;
  absl::Duration write_takes;  // each half of a write to a server's disk
  bool late_rosters = false;   // servers get them behind the next message
  SmallRoom small_room = SmallRoom::kNone;
};

struct JobPlan {
  std::string codec;
  wire::StoreMode mode = wire::DIST_SYNC;
  bool optimizer = true;
  int rounds = 0;
  std::vector<ReferenceTensor> tensors;
  FaultPlan faults;
  CrashPlan crashes;
  Troubles troubles;
  std::string aimed_at;        // the state of FaultTable that most faults wait for
  float momentum = 0;          // of the optimizer
  std::string pulls = "none";  // pull_compression
  absl::Duration latency, retry_interval;
  size_t shard_threads = 1;
  bool awaits_acknowledgements = true;  // in some rounds
  bool inits_one_by_one = false;        // a call of Init for each tensor
  int first_barriers = 1;
  bool measured = false;  // thresholds; the rounds after that follow a decision about virtual times
  // By round, from 0, which Init gives. Without the rounds behind a decision, and without all if
  // workers crash: RoundFold then knows what counts.
  std::vector<Weights> expected;

  // Nothing is lost, so nothing need be sent twice: the job ends before the first retry.
  bool loses_nothing() const {
    return faults.drop + faults.truncate + faults.delay == 0 && !crashes.any() &&
           troubles.cut_servers.empty();
  }

  // A mean over some of the workers would not be exact.
  bool average() const { return crashes.workers.empty(); }

  std::string name() const;
};

// The gradient of one worker for one round.
std::vector<float> GradientOf(const ReferenceTensor& tensor, uint32_t worker, int round);

// What the fold of a tensor needs to know of the plan.
ReferenceOptions FoldOptions(const JobPlan& plan, const ReferenceTensor& tensor, uint32_t workers);

JobPlan DrawPlan(uint64_t seed, uint32_t workers, uint32_t servers);

}  // namespace slimps

#endif  // SLIMPS_TESTS_SIMULATION_JOB_PLAN_H_
