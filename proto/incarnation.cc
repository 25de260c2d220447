// SPDX-License-Identifier: Apache-2.0
#include "proto/incarnation.h"

#include <random>

namespace slimps {

Incarnation DrawIncarnation() {
  std::random_device device;
  const auto draw = [&] { return (uint64_t{device()} << 32) | device(); };
  Incarnation drawn;
  while (!drawn.is_set()) drawn = {.high = draw(), .low = draw()};
  return drawn;
}

}  // namespace slimps
