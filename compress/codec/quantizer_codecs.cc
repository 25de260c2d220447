#include "compress/codec/registry.h"

namespace slimps {

std::vector<CodecEntry> QuantizerCodecs() {
  return {};
}

}  // namespace slimps
