// SPDX-License-Identifier: Apache-2.0
#include "compress/codec/quantise/partition_quantizer.h"

#include <algorithm>

namespace slimps {
namespace {

// Owned by one encoding. Several threads may call Blocks at the same time, see EncodeRun.
class PartitionRun final : public EncodeRun {
 public:
  PartitionRun(const PartitionQuantizer& codec, const EncodeInput& input,
               std::span<std::byte> payload, EncodeWorkspace& workspace)
      : codec_(codec),
        input_(input),
        payload_(payload),
        norms_(workspace.Take<InputNorms>(Codec::Blocks(input.gradient.size()))),
        sums_(workspace.Take<BlockSums>(norms_.size())),
        layout_(codec.Layout(input.gradient.size())) {}

  size_t passes() const override { return 2; }

  void Blocks(size_t pass, size_t first, size_t last) override {
    for (size_t block = first; block < last; ++block) {
      if (pass == 0) {
        norms_[block] = codec_.MeasureBlock(input_, block);
      } else {
        QuantizeBlock(block);
      }
    }
  }

  void EndPass(size_t pass) override {
    if (pass != 0) return;
    PartitionNorms norms = {.elements = input_.gradient.size()};
    for (const InputNorms& block : norms_) {
      norms.input2 += static_cast<double>(block.input2);
      norms.largest = std::max(norms.largest, block.largest);
    }
    const Scaling scaling = codec_.ChooseScaling(norms);
    rounding_ = {.grad_scale = input_.grad_scale,
                 .inverse = scaling.inverse,
                 .scale = scaling.scale,
                 .levels = layout_.levels};
    layout_.value = scaling.scale;
    BuildLevelsHeader(layout_, payload_);
    input_norm2_ = norms.input2;
  }

  EncodeStats Finish() override {
    EncodeStats stats = SumOf(sums_);
    stats.input_norm2 = input_norm2_;
    stats.payload_bytes = layout_.PayloadBytes();
    return stats;
  }

 private:
  void QuantizeBlock(size_t block) {
    Rounding rounding = rounding_;
    RandomLanes random;
    codec_.StartRandom(input_.context, block, &random);
    rounding.random = &random;
    auto* out = reinterpret_cast<uint8_t*>(payload_.data() + layout_.PlanesOffset(block));
    sums_[block] = codec_.EncodeBlock(BlockInput(input_, block), rounding, layout_, out);
  }

  const PartitionQuantizer& codec_;
  const EncodeInput input_;
  const std::span<std::byte> payload_;
  const std::span<InputNorms> norms_;
  const std::span<BlockSums> sums_;
  // Only EndPass writes these, between passes; the threads of a pass only read them.
  LevelsLayout layout_;
  Rounding rounding_;
  double input_norm2_ = 0;
};

}  // namespace

std::unique_ptr<EncodeRun> PartitionQuantizer::Begin(const EncodeInput& input,
                                                     std::span<std::byte> payload,
                                                     EncodeWorkspace& workspace) const {
  return std::make_unique<PartitionRun>(*this, input, payload, workspace);
}

InputNorms PartitionQuantizer::MeasureBlock(const EncodeInput& input, size_t block) const {
  const BlockInput in(input, block);
  return measure_(in.gradient, in.residual, input.grad_scale, in.elements);
}

void PartitionQuantizer::StartRandom(const EncodeContext& context, size_t block,
                                     RandomLanes* random) const {
  kernels().quantize.start_random(RandomStreamOf(seed_, context), static_cast<uint32_t>(block),
                                  random);
}

}  // namespace slimps
