#include "compress/codec/registry.h"

namespace slimps {

std::vector<CodecEntry> SparseCodecs() {
  return {};
}

}  // namespace slimps
