// SPDX-License-Identifier: Apache-2.0
#include "compress/codec/catalogue/registry.h"
#include "compress/codec/quantise/one_bit.h"
#include "compress/codec/quantise/two_bit.h"

namespace slimps {

std::vector<CodecEntry> SignCodecs() {
  return {{"1bit", {"scaling", "threshold", "error_feedback"}, MakeOneBitCodec},
          {"2bit", {"threshold", "error_feedback"}, MakeTwoBitCodec}};
}

}  // namespace slimps
