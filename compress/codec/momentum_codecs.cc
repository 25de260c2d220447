// SPDX-License-Identifier: Apache-2.0
#include "compress/codec/dgc.h"
#include "compress/codec/registry.h"

namespace slimps {

std::vector<CodecEntry> MomentumCodecs() {
  return {{"dgc", {"ratio", "k", "mu", "nesterov", "value"}, MakeDgcCodec}};
}

}  // namespace slimps
