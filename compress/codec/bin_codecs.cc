#include "compress/codec/registry.h"

namespace slimps {

std::vector<CodecEntry> BinCodecs() {
  return {};
}

}  // namespace slimps
