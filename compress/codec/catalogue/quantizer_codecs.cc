// SPDX-License-Identifier: Apache-2.0
#include "compress/codec/catalogue/registry.h"
#include "compress/codec/quantise/dithering.h"
#include "compress/codec/quantise/drive.h"
#include "compress/codec/quantise/qsgd.h"
#include "compress/codec/quantise/signsgd.h"
#include "compress/codec/quantise/terngrad.h"
#include "compress/codec/quantise/thc.h"

namespace slimps {

std::vector<CodecEntry> QuantizerCodecs() {
  return {
      {"signsgd", {"error_feedback"}, MakeSignSgdCodec},
      {"terngrad", {"clip", "seed", "error_feedback"}, MakeTernGradCodec},
      {"qsgd", {"bits", "bucket", "norm", "seed", "error_feedback"}, MakeQsgdCodec},
      {"dithering", {"k", "partition", "normalize", "seed", "error_feedback"}, MakeDitheringCodec},
      {"drive", {"scale", "seed", "error_feedback"}, MakeDriveCodec},
      {"thc", {"scale", "seed", "error_feedback"}, MakeThcCodec, /*has_phases=*/true},
  };
}

}  // namespace slimps
