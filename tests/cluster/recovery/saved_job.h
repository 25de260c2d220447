// SPDX-License-Identifier: Apache-2.0
// A job of some rounds that is saved in a folder, or begins with what a folder has.
#ifndef SLIMPS_TESTS_CLUSTER_RECOVERY_SAVED_JOB_H_
#define SLIMPS_TESTS_CLUSTER_RECOVERY_SAVED_JOB_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "tests/cluster/in_process_cluster.h"
#include "tests/cluster/random_values.h"

namespace slimps {

// What a job leaves behind.
struct End {
  std::vector<std::vector<float>> weights;
  std::string states;
  std::map<uint32_t, std::string> residuals;  // by worker
  friend bool operator==(const End&, const End&) = default;
};

struct Job {
  ClusterOptions cluster;
  wire::OptimizerSpec optimizer = Sgd(0.05, 0.9);
  std::vector<std::vector<int64_t>> shapes = {{7}, {30, 30}, {60, 50}};
  std::string load;  // a folder; "": begins with round 1
  int to = 8;
  int save_after = 0;  // a round
  std::string save;
  int skips = 0;  // the round that worker 1 does not push of the first key
};

// Returns a job of two workers whose bits show every round that is lost or made twice.
Job MakeJob(const std::string& compression, const std::string& pulls = "none",
            uint32_t servers = 2);

// Sets the optimizer to one of Adam's kind.
void UseMoments(wire::OptimizerSpec::Kind kind, wire::OptimizerSpec* optimizer);

// Returns the path of a folder that is not there.
std::string NewFolder(const std::string& name);

// Initialises the keys, and pulls their weights.
void Begin(KVStore& store, const Job& job, std::vector<std::vector<float>>* weights);

// Pushes and pulls one round.
void Step(KVStore& store, const Job& job, int round, std::vector<std::vector<float>>* weights);

// Runs the job.
End Train(const Job& job);

// Runs the first four rounds and saves them in `folder`.
void SaveJob(const Job& like, const std::string& folder);

}  // namespace slimps

#endif  // SLIMPS_TESTS_CLUSTER_RECOVERY_SAVED_JOB_H_
