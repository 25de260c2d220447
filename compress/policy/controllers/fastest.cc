// SPDX-License-Identifier: Apache-2.0
// The search of Fastest (iteration_model.h).
#include <algorithm>
#include <utility>

#include "compress/policy/controllers/iteration_model.h"

namespace slimps {
namespace {

// What encoding counts beside the link's time. A core that encodes is the bottleneck as seldom as
// that; the model then decides.
constexpr double kEncodeWeights[] = {0.0, 0.3, 1.0};
constexpr size_t kSweeps = 3;

// One threshold leaves budget unused, less than the change of one tensor is worth. Among more
// tensors than this, that is too little for a dynamic programme, which takes long there.
constexpr size_t kFewTensors = 16;

class Search {
 public:
  Search(const TimedProblem& problem, std::span<const Allocation> starts) : problem_(problem) {
    costs_.budget = problem.budget;
    for (const TimedTensor& tensor : problem.tensors) {
      Levels& levels = costs_.tensors.emplace_back();
      for (const TimedLevel& level : tensor.levels) levels.push_back({.error = level.error});
    }
    for (const Allocation& start : starts) Try(start);
  }

  void TryProgrammes() {
    const Allocation reference = best_.allocation;
    std::vector<double> ready;
    for (const TimedTensor& tensor : problem_.tensors) ready.push_back(tensor.ready_ns);
    std::ranges::sort(ready);
    double best_weight = 0;
    for (size_t moment = 0; moment < kMoments && !ready.empty(); ++moment) {
      const double from = moment == 0 ? 0 : ready[moment * ready.size() / kMoments];
      for (const double encode_weight : kEncodeWeights) {
        SetCosts(from, encode_weight);
        if (Try(OneThreshold(costs_, reference))) best_weight = encode_weight;
      }
      if (ready.size() > kFewTensors) continue;
      SetCosts(from, best_weight);
      Try(LeastCost(costs_, reference));
    }
  }

  void TrySingleChanges() {
    for (size_t sweep = 0; sweep < kSweeps; ++sweep) {
      const double before = best_.ns;
      for (size_t i = 0; i < costs_.tensors.size(); ++i) {
        for (size_t level = 0; level < costs_.tensors[i].size(); ++level) {
          Allocation changed = best_.allocation;
          if (std::exchange(changed[i], level) != level) Try(changed);
        }
      }
      if (best_.ns == before) return;
    }
  }

  Allocation best() && { return std::move(best_.allocation); }

 private:
  struct Tried {
    Allocation allocation;
    double ns = 0, bytes = 0;
  };

  // Returns true if it is the best so far.
  bool Try(const Allocation& allocation) {
    if (!WithinBudget(costs_, allocation)) return false;
    Tried tried{.allocation = allocation, .ns = PredictIterationNs(problem_, allocation)};
    for (size_t i = 0; i < allocation.size(); ++i) {
      const TimedLevel& level = problem_.tensors[i].levels[allocation[i]];
      tried.bytes += level.push_bytes + level.pull_bytes;
    }
    const bool better = tried.ns != best_.ns ? tried.ns < best_.ns : tried.bytes < best_.bytes;
    if (!best_.allocation.empty() && !better) return false;
    best_ = std::move(tried);
    return true;
  }

  // Tensors that are ready before `from` travel at next to no cost.
  void SetCosts(double from, double encode_weight) {
    for (size_t i = 0; i < costs_.tensors.size(); ++i) {
      const double weight = problem_.tensors[i].ready_ns < from ? 1e-3 : 1;
      for (size_t level = 0; level < costs_.tensors[i].size(); ++level) {
        const TimedLevel& timed = problem_.tensors[i].levels[level];
        costs_.tensors[i][level].cost =
            weight * (timed.push_bytes + timed.pull_bytes) * problem_.link.ns_per_byte +
            encode_weight * (timed.encode_ns + timed.decode_ns);
      }
    }
  }

  const TimedProblem& problem_;
  AllocationProblem costs_;
  Tried best_;
};

}  // namespace

Allocation Fastest(const TimedProblem& problem, std::span<const Allocation> starts) {
  Search search(problem, starts);
  search.TryProgrammes();
  search.TrySingleChanges();
  return std::move(search).best();
}

}  // namespace slimps
