// SPDX-License-Identifier: Apache-2.0
#include "proto/incarnation.h"

#include <random>

#include "proto/base/simulation/simulation.h"

namespace slimps {

Incarnation DrawIncarnation() {
  const auto draw = [] {
    if (simulation::Active()) return simulation::Random();
    std::random_device device;
    return (uint64_t{device()} << 32) | device();
  };
  Incarnation drawn;
  while (!drawn.is_set()) drawn = {.high = draw(), .low = draw()};
  return drawn;
}

}  // namespace slimps
