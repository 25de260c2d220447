// SPDX-License-Identifier: Apache-2.0
#include "compress/codec/lowrank/atoms.h"

namespace slimps {

std::vector<double> AtomProbabilities(std::span<const double> sizes, double budget) {
  // rest[i]: the sum of the sizes from i on, the small ones added first.
  std::vector<double> rest(sizes.begin(), sizes.end());
  for (size_t i = rest.size(); i > 1; --i) rest[i - 2] += rest[i - 1];
  std::vector<double> probabilities(sizes.size(), 0.0);
  for (size_t i = 0; i < sizes.size() && sizes[i] > 0 && budget > 0; ++i, --budget) {
    if (sizes[i] * budget > rest[i]) {
      probabilities[i] = 1;
      continue;
    }
    for (size_t j = i; j < sizes.size(); ++j) probabilities[j] = sizes[j] * budget / rest[i];
    break;
  }
  return probabilities;
}

std::vector<size_t> DrawAtoms(std::span<const double> probabilities, double uniform) {
  std::vector<size_t> drawn;
  double before = 0;
  for (size_t i = 0; i < probabilities.size(); ++i) {
    before += probabilities[i];
    // Subtracts, since a sum would round: a certain atom must be drawn for every uniform below 1.
    if (uniform < before - static_cast<double>(drawn.size())) drawn.push_back(i);
  }
  return drawn;
}

}  // namespace slimps
