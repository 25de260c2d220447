// SPDX-License-Identifier: Apache-2.0
// L-GreCo's dynamic programme (allocation.h says what differs from the paper's algorithm 1).
#include <algorithm>
#include <optional>
#include <utility>

#include "compress/policy/allocation/allocation.h"

namespace slimps {
namespace {

struct State {
  double error = 0, cost = 0;
  uint32_t parent = 0;  // index among the states of the tensor before
  uint32_t level = 0;   // of this tensor
};
using States = std::vector<State>;

struct Choice {
  uint32_t parent = 0, level = 0;
};

// What the tensors from a given one on cost and err at least.
struct Rest {
  double error = 0;   // with the smallest errors
  double priced = 0;  // cost + price * error, at the best levels for that price
};

bool LessError(const State& a, const State& b) {
  return a.error != b.error ? a.error < b.error : a.cost < b.cost;
}

class Programme {
 public:
  Programme(const AllocationProblem& problem, Allocation known)
      : problem_(problem),
        price_(LeastPrice(problem)),
        known_(std::move(known)),
        known_cost_(TotalCost(problem.tensors, known_)),
        rest_(problem.tensors.size() + 1) {
    for (size_t i = problem.tensors.size(); i-- > 0;) {
      const Levels& levels = problem.tensors[i];
      const auto priced = [this](const Level& l) { return l.cost + price_ * l.error; };
      rest_[i].error = rest_[i + 1].error + std::ranges::min(levels, {}, &Level::error).error;
      rest_[i].priced = rest_[i + 1].priced + priced(std::ranges::min(levels, {}, priced));
    }
  }

  Allocation Run() {
    States states = {{}};
    for (size_t i = 0; i < problem_.tensors.size(); ++i) {
      states = WithoutWorse(Thinned(Expand(states, i)));
      history_.emplace_back();
      for (const State& state : states) history_.back().push_back({state.parent, state.level});
    }
    if (states.empty()) return known_;
    const auto best = std::ranges::min_element(states, {}, &State::cost);
    return best->cost < known_cost_ ? Trace(static_cast<size_t>(best - states.begin())) : known_;
  }

 private:
  // Returns the states after tensor i that may still end within the budget and below known_cost_.
  States Expand(const States& states, size_t i) const {
    const Rest& rest = rest_[i + 1];
    const double ceiling = Ceiling(problem_);
    States next;
    for (uint32_t parent = 0; parent < states.size(); ++parent) {
      for (uint32_t level = 0; level < problem_.tensors[i].size(); ++level) {
        const Level& chosen = problem_.tensors[i][level];
        const double error = states[parent].error + chosen.error;
        const double cost = states[parent].cost + chosen.cost;
        if (error + rest.error > ceiling) continue;
        // No end of this state costs less: the budget that it leaves unused is worth price_ each.
        if (cost + rest.priced - price_ * (ceiling - error) > known_cost_) continue;
        next.push_back({error, cost, parent, level});
      }
    }
    return next;
  }

  // If there are more states than steps of the budget, returns the cheapest in each step.
  States Thinned(States states) const {
    if (states.size() <= kBudgetSteps) return states;
    std::vector<std::optional<State>> steps(kBudgetSteps + 1);
    const double scale = kBudgetSteps / Ceiling(problem_);
    for (const State& state : states) {
      const auto step = std::min(kBudgetSteps, static_cast<size_t>(state.error * scale));
      std::optional<State>& kept = steps[step];
      if (!kept.has_value() || state.cost < kept->cost ||
          (state.cost == kept->cost && state.error < kept->error)) {
        kept = state;
      }
    }
    states.clear();
    for (const auto& kept : steps) {
      if (kept.has_value()) states.push_back(*kept);
    }
    return states;
  }

  // Returns the states, by rising error, without those that another one beats in both respects.
  static States WithoutWorse(States states) {
    std::ranges::sort(states, LessError);
    States kept;
    for (const State& state : states) {
      if (kept.empty() || state.cost < kept.back().cost) kept.push_back(state);
    }
    return kept;
  }

  Allocation Trace(size_t end) const {
    Allocation allocation(problem_.tensors.size());
    for (size_t i = allocation.size(); i-- > 0;) {
      allocation[i] = history_[i][end].level;
      end = history_[i][end].parent;
    }
    return allocation;
  }

  const AllocationProblem& problem_;
  const double price_;
  const Allocation known_;
  const double known_cost_;
  std::vector<Rest> rest_;  // rest_[i]: of the tensors from i on
  std::vector<std::vector<Choice>> history_;
};

}  // namespace

Allocation LeastCost(const AllocationProblem& problem, const Allocation& reference) {
  return Programme(problem, OneThreshold(problem, reference)).Run();
}

}  // namespace slimps
