// SPDX-License-Identifier: Apache-2.0
// A job whose every detail follows from a seed: its tensors, codec, mode, calls, faults of the
// network. It runs the real scheduler, servers and workers under a simulation, and compares each
// pulled weight with a fold of the workers' gradients by one thread
// (tests/cluster/codec_reference.h).
#ifndef SLIMPS_TESTS_SIMULATION_SIMULATED_JOB_H_
#define SLIMPS_TESTS_SIMULATION_SIMULATED_JOB_H_

#include <cstdint>
#include <string>

#include "proto/base/simulation/simulation.h"

namespace slimps {

struct SimulatedJob {
  uint64_t seed = 1;
  uint32_t workers = 4;
  uint32_t servers = 2;
  bool trace = false;
  std::string folder;  // an empty one, for snapshots and the journal
};

struct JobResult {
  std::string setting;  // what the seed has chosen, in words
  simulation::Outcome outcome;
  std::string faults;  // FaultTable::ToString
};

// Runs the job. Whatever is wrong ends the process by simulation::Fail: weights that differ from
// the fold, an error of a call, threads that wait for ever.
JobResult RunSimulatedJob(const SimulatedJob& job);

}  // namespace slimps

#endif  // SLIMPS_TESTS_SIMULATION_SIMULATED_JOB_H_
