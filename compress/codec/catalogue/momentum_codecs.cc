// SPDX-License-Identifier: Apache-2.0
#include "compress/codec/catalogue/registry.h"
#include "compress/codec/sparse/dgc.h"

namespace slimps {

std::vector<CodecEntry> MomentumCodecs() {
  return {{"dgc", {"ratio", "k", "mu", "nesterov", "value"}, MakeDgcCodec}};
}

}  // namespace slimps
