#include "compress/codec/registry.h"

namespace slimps {

std::vector<CodecEntry> MomentumCodecs() {
  return {};
}

}  // namespace slimps
