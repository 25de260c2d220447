// SPDX-License-Identifier: Apache-2.0
#include "worker/trainer/batch_plan.h"

#include <algorithm>
#include <numeric>
#include <random>
#include <utility>

namespace slimps {

std::vector<uint32_t> ShuffledOrder(size_t count, uint64_t seed, uint64_t epoch) {
  std::vector<uint32_t> order(count);
  std::iota(order.begin(), order.end(), 0u);
  std::seed_seq mixed{static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32),
                      static_cast<uint32_t>(epoch), static_cast<uint32_t>(epoch >> 32)};
  std::mt19937_64 random(mixed);
  for (size_t i = count; i > 1; --i) {
    // A remainder is not exactly uniform, but at 2^64 : 2^32 the difference cannot be seen. It is
    // the same everywhere; std::uniform_int_distribution is not.
    std::swap(order[i - 1], order[random() % i]);
  }
  return order;
}

BatchPlan::BatchPlan(const Options& options, uint64_t epoch) : batch_(options.batch) {
  const std::vector<uint32_t> order = ShuffledOrder(options.samples, options.seed, epoch);
  for (size_t i = options.rank; i < order.size(); i += options.workers) mine_.push_back(order[i]);
  const size_t largest = (options.samples + options.workers - 1) / options.workers;
  steps_ = (largest + batch_ - 1) / batch_;
}

std::span<const uint32_t> BatchPlan::Batch(size_t step) const {
  const size_t first = std::min(step * batch_, mine_.size());
  return std::span<const uint32_t>(mine_).subspan(first, std::min(batch_, mine_.size() - first));
}

}  // namespace slimps
