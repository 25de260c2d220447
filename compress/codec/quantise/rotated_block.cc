// SPDX-License-Identifier: Apache-2.0
#include "compress/codec/quantise/rotated_block.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>

#include "compress/codec/encode_run.h"

namespace slimps {

BlockSums EncodeRotatedBlock(
    const Kernels& kernels, const PhiloxStream& rotation, const EncodeInput& input, size_t block,
    absl::FunctionRef<RotatedSums(float input2, std::span<float> y)> encode,
    absl::FunctionRef<void(std::span<float> y)> decode) {
  const BlockInput in(input, block);
  const size_t n = in.elements, m = RotatedElements(n);
  const RandomStream signs = {rotation.key0, rotation.key1, rotation.round, rotation.worker,
                              rotation.partition};
  const auto number = static_cast<uint32_t>(block);
  const RotateKernels& rotate = kernels.rotate;
  alignas(64) float rotated[kBlockElements];
  const std::span<float> y = std::span<float>(rotated).first(m);
  const float input2 =
      rotate.rotate(in.gradient, in.residual, input.grad_scale, n, signs, number, rotated);
  const RotatedSums sums = encode(input2, y);

  // In fp64, because the parts of these sums may overflow.
  double decoded2 = sums.decoded2, error2 = 0;
  if (in.residual != nullptr) {
    decode(y);
    error2 = static_cast<double>(rotate.subtract(rotated, n, signs, number, in.residual));
    decoded2 = error2 - sums.difference;
  } else {
    if (m != n) {  // what falls into the padding is lost
      alignas(64) float decoded[kBlockElements];
      decode(y);
      rotate.restore(rotated, n, signs, number, decoded);
      decoded2 = static_cast<double>(kernels.quantize.measure(decoded, nullptr, 1, n).input2);
    }
    error2 = decoded2 + sums.difference;
  }
  if (!std::isfinite(sums.difference)) {  // squares overflowed
    decoded2 = std::numeric_limits<double>::infinity();
    if (in.residual == nullptr) error2 = decoded2;
  }
  return {.input2 = input2,
          .decoded2 = static_cast<float>(std::max(decoded2, 0.0)),
          .error2 = static_cast<float>(std::max(error2, 0.0)),
          .sent = static_cast<uint32_t>(n)};
}

}  // namespace slimps
