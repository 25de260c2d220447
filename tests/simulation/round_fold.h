// SPDX-License-Identifier: Apache-2.0
// RoundFold: the weights of a job whose workers may crash, by one thread. Which pushes count is
// what the servers say as they complete rounds; what they carry is known from the plan.
//
//   RoundFold fold(plan, /*workers=*/4);
//   fold.TakeNote("counts s:t0 2 7 0,1,3");        // partition 2 of t0, round 7
//   fold.Begin(/*worker=*/2, /*round=*/8);         // a new process, which knows no residual
//   fold.WeightsOf(/*tensor=*/0, /*round=*/7);
//
// Owned by the run: one thread of it goes on at a time. What is wrong ends the run by
// simulation::Fail.
#ifndef SLIMPS_TESTS_SIMULATION_ROUND_FOLD_H_
#define SLIMPS_TESTS_SIMULATION_ROUND_FOLD_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "tests/cluster/codec_reference.h"
#include "tests/simulation/job_plan.h"

namespace slimps {

class RoundFold final {
 public:
  // REQUIRES: `plan` outlives this. The mode is dist_sync.
  RoundFold(const JobPlan& plan, uint32_t workers);

  // Takes what a server notes of a round (server/round/open_rounds.cc), and leaves other notes. A
  // server that was started again must count the same pushes as before.
  void TakeNote(absl::string_view note);

  // Notes the first round that a worker's process will push.
  void Begin(uint32_t worker, int round);

  // Fails the run if a round that `worker`'s process has pushed and pulled lacks its push.
  // REQUIRES: the round does not follow a decision about a measured threshold.
  const std::vector<float>& WeightsOf(size_t tensor, int round, uint32_t worker);

 private:
  struct Tensor {
    std::string name;  // typed
    size_t partitions = 0;
    std::unique_ptr<ReferenceTensorJob> job;
    std::vector<std::vector<float>> weights;  // by round
    std::map<int, CountedWorkers> counted;    // by round
  };

  void Compute(Tensor* tensor, size_t index);

  const JobPlan& plan_;
  const uint32_t workers_;
  std::vector<Tensor> tensors_;
  std::vector<std::vector<int>> begun_;  // by worker: the first rounds of its processes
};

}  // namespace slimps

#endif  // SLIMPS_TESTS_SIMULATION_ROUND_FOLD_H_
