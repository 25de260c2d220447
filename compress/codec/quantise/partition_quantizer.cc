// SPDX-License-Identifier: Apache-2.0
#include "compress/codec/quantise/partition_quantizer.h"

#include <algorithm>

namespace slimps {

EncodeStats PartitionQuantizer::EncodeValid(const EncodeInput& input, std::span<std::byte> payload,
                                            EncodeWorkspace& workspace) const {
  const auto sums = workspace.Take<BlockSums>(Blocks(input.gradient.size()));
  PartitionNorms norms = {.elements = input.gradient.size()};
  for (size_t block = 0; block < sums.size(); ++block) {
    const BlockInput in(input, block);
    const InputNorms its = measure_(in.gradient, in.residual, input.grad_scale, in.elements);
    norms.input2 += static_cast<double>(its.input2);
    norms.largest = std::max(norms.largest, its.largest);
  }
  const Scaling scaling = ChooseScaling(norms);
  LevelsLayout layout = Layout(input.gradient.size());
  layout.value = scaling.scale;
  BuildLevelsHeader(layout, payload);
  RandomLanes random;
  const Rounding rounding = {.grad_scale = input.grad_scale,
                             .inverse = scaling.inverse,
                             .scale = scaling.scale,
                             .levels = layout.levels,
                             .random = &random};
  for (size_t block = 0; block < sums.size(); ++block) {
    kernels().quantize.start_random(RandomStreamOf(seed_, input.context),
                                    static_cast<uint32_t>(block), &random);
    auto* const out = reinterpret_cast<uint8_t*>(payload.data() + layout.PlanesOffset(block));
    sums[block] = EncodeBlock(BlockInput(input, block), rounding, layout, out);
  }
  EncodeStats stats = SumOf(sums);
  stats.input_norm2 = norms.input2;
  stats.payload_bytes = layout.PayloadBytes();
  return stats;
}

}  // namespace slimps
