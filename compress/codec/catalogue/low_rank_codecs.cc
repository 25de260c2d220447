// SPDX-License-Identifier: Apache-2.0
#include "compress/codec/catalogue/registry.h"
#include "compress/codec/lowrank/atomo.h"
#include "compress/codec/lowrank/powersgd.h"

namespace slimps {

std::vector<CodecEntry> LowRankCodecs() {
  return {{"powersgd", {"rank", "seed"}, MakePowerSgdCodec, /*has_phases=*/true},
          {"atomo", {"s", "seed"}, MakeAtomoCodec}};
}

}  // namespace slimps
