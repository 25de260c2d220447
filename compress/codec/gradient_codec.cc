// SPDX-License-Identifier: Apache-2.0
#include "compress/codec/gradient_codec.h"

#include <cmath>
#include <utility>

#include "compress/codec/momentum_input.h"
#include "compress/format/format.h"

namespace slimps {
namespace {

// Returns the norm's square in fp64, for gradients whose squares exceed fp32.
double LargeNorm2(const EncodeInput& input) {
  double norm2 = 0;
  for (const float value : input.gradient) {
    const auto scaled = static_cast<double>(value * input.grad_scale);
    norm2 += scaled * scaled;
  }
  return norm2;
}

}  // namespace

GradientCodec::GradientCodec(CodecSpec spec, const Kernels& kernels, const GradientOptions& options,
                             std::unique_ptr<Codec> inner)
    : Codec(std::move(spec), kernels, inner->limit()),
      options_(options),
      inner_(std::move(inner)),
      by_blocks_(dynamic_cast<const BlockCodec*>(inner_.get())) {}

MomentumRule GradientCodec::Rule(float grad_scale) const {
  return {.step = options_.momentum == GradientMomentum::kNesterov ? MomentumStep::kNesterov
                                                                   : MomentumStep::kHeavyBall,
          .mu = options_.mu,
          .grad_scale = grad_scale};
}

EncodeStats GradientCodec::EncodeValid(const EncodeInput& input, std::span<std::byte> payload,
                                       EncodeWorkspace& workspace) const {
  EncodeInput clipped = input;
  clipped.finer = {};  // made of a gradient that was not clipped, or had no momentum
  if (options_.clip) clipped.grad_scale *= ClipFactor(input);
  if (!has_momentum()) return inner_->EncodeValid(clipped, payload, workspace);

  const std::span<float> prepared = workspace.Take<float>(input.gradient.size());
  const auto advance = [&, rule = Rule(clipped.grad_scale)](size_t block) {
    const BlockInput in(clipped, block);
    kernels().momentum.advance(in.gradient, in.momentum, rule, in.elements,
                               prepared.data() + block * kBlockElements);
  };
  EncodeInput inner = clipped;
  inner.gradient = prepared;
  inner.grad_scale = 1;
  inner.momentum = {};
  EncodeStats stats;
  if (by_blocks_ != nullptr) {
    stats = by_blocks_->EncodePrepared(inner, payload, workspace, advance);
  } else {
    // The codec may sample the gradient before its first pass, so all of it must be prepared.
    for (size_t block = 0; block < Blocks(prepared.size()); ++block) advance(block);
    stats = inner_->EncodeValid(inner, payload, workspace);
  }
  if (options_.momentum == GradientMomentum::kDgc) {
    Mask(clipped, payload.first(stats.payload_bytes));
  }
  stats.momentum_bound = MomentumBoundAfter(clipped, Rule(clipped.grad_scale));
  return stats;
}

float GradientCodec::ClipFactor(const EncodeInput& input) const {
  double norm2 = 0;
  for (size_t block = 0; block < Blocks(input.gradient.size()); ++block) {
    const BlockInput in(input, block);
    norm2 +=
        static_cast<double>(kernels().momentum.norm2(in.gradient, input.grad_scale, in.elements));
  }
  if (!std::isfinite(norm2)) norm2 = LargeNorm2(input);
  const double norm = std::sqrt(norm2);
  return norm <= *options_.clip ? 1 : static_cast<float>(*options_.clip / norm);
}

void GradientCodec::Mask(const EncodeInput& input, std::span<const std::byte> payload) const {
  alignas(64) float sent[kBlockElements];
  for (size_t block = 0; block < Blocks(input.gradient.size()); ++block) {
    const BlockInput in(input, block);
    Decode(format(), payload, input.gradient.size(), block * kBlockElements,
           std::span(sent).first(in.elements));
    kernels().momentum.mask(sent, in.elements, in.momentum);
  }
}

}  // namespace slimps
