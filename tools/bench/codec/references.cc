// SPDX-License-Identifier: Apache-2.0
#include "tools/bench/codec/references.h"

#include "tools/bench/codec/reference_sets.h"

namespace slimps {

const References& FindReferences(std::string_view name) {
  if (name == kAvx512References.name) return kAvx512References;
  if (name == kAvx2References.name) return kAvx2References;
  return kScalarReferences;
}

}  // namespace slimps
