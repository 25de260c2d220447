// SPDX-License-Identifier: Apache-2.0
#include "compress/codec/catalogue/registry.h"
#include "compress/codec/sparse/adacomp.h"
#include "compress/codec/sparse/dryden.h"
#include "compress/codec/sparse/local_selection.h"

namespace slimps {

std::vector<CodecEntry> BinCodecs() {
  return {
      {"adacomp", {"lt_conv", "lt_fc", "lt", "scale_factor", "error_feedback"}, MakeAdaCompCodec},
      {"local_selection", {"lt_conv", "lt_fc", "lt", "error_feedback"}, MakeLocalSelectionCodec},
      {"dryden", {"ratio", "error_feedback"}, MakeDrydenCodec},
  };
}

}  // namespace slimps
