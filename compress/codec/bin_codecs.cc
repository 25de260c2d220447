// SPDX-License-Identifier: Apache-2.0
#include "compress/codec/adacomp.h"
#include "compress/codec/dryden.h"
#include "compress/codec/local_selection.h"
#include "compress/codec/registry.h"

namespace slimps {

std::vector<CodecEntry> BinCodecs() {
  return {
      {"adacomp", {"lt_conv", "lt_fc", "lt", "scale_factor", "error_feedback"}, MakeAdaCompCodec},
      {"local_selection", {"lt_conv", "lt_fc", "lt", "error_feedback"}, MakeLocalSelectionCodec},
      {"dryden", {"ratio", "error_feedback"}, MakeDrydenCodec},
  };
}

}  // namespace slimps
