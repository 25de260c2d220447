// SPDX-License-Identifier: Apache-2.0
#include "compress/codec/dithering.h"
#include "compress/codec/qsgd.h"
#include "compress/codec/registry.h"
#include "compress/codec/signsgd.h"
#include "compress/codec/terngrad.h"

namespace slimps {

std::vector<CodecEntry> QuantizerCodecs() {
  return {
      {"signsgd", {"error_feedback"}, MakeSignSgdCodec},
      {"terngrad", {"clip", "seed", "error_feedback"}, MakeTernGradCodec},
      {"qsgd", {"bits", "bucket", "norm", "seed", "error_feedback"}, MakeQsgdCodec},
      {"dithering", {"k", "partition", "normalize", "seed", "error_feedback"}, MakeDitheringCodec},
  };
}

}  // namespace slimps
