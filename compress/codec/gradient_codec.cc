// SPDX-License-Identifier: Apache-2.0
#include "compress/codec/gradient_codec.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "compress/codec/block_codec.h"
#include "compress/codec/momentum_input.h"
#include "compress/format/format.h"

namespace slimps {

// Owned by one encoding. Several threads may call Blocks at the same time, see EncodeRun.
class GradientCodec::Run final : public EncodeRun {
 public:
  Run(const GradientCodec& codec, const EncodeInput& input, std::span<std::byte> payload,
      EncodeWorkspace& workspace)
      : codec_(codec), input_(input), payload_(payload), workspace_(workspace) {
    if (codec.options_.clip) {
      norms2_ = workspace.Take<float>(Codec::Blocks(input.gradient.size()));
    } else {
      BeginMomentum(0);
    }
  }

  // Until the inner run begins, any number over the present pass will do: it is asked for again.
  size_t passes() const override {
    return inner_ == nullptr ? kOwnPasses + 1 : first_inner_ + inner_->passes() + (masks() ? 1 : 0);
  }

  void Blocks(size_t pass, size_t first, size_t last) override {
    if (inner_ != nullptr && pass >= first_inner_)
      return BlocksOfInner(pass - first_inner_, first, last);
    for (size_t block = first; block < last; ++block) {
      if (pass == 0 && codec_.options_.clip) {
        Measure(block);
      } else {
        Advance(block);
      }
    }
  }

  void EndPass(size_t pass) override {
    if (pass == 0 && codec_.options_.clip) {
      input_.grad_scale *= ClipFactor();
      BeginMomentum(1);
    } else if (inner_ == nullptr) {
      BeginInner(pass + 1);
    } else {
      pass -= first_inner_;
      if (pass < inner_->passes()) inner_->EndPass(pass);
      // The payload is complete now, and masking reads it.
      if (masks() && pass + 1 == inner_->passes()) stats_ = inner_->Finish();
    }
  }

  EncodeStats Finish() override {
    EncodeStats stats = masks() ? stats_ : inner_->Finish();
    if (codec_.has_momentum()) {
      stats.momentum_bound = MomentumBoundAfter(input_, codec_.Rule(input_.grad_scale));
    }
    return stats;
  }

 private:
  static constexpr size_t kOwnPasses = 2;  // the most passes before the inner run's

  bool masks() const { return codec_.options_.momentum == GradientMomentum::kDgc; }

  void Measure(size_t block) {
    const BlockInput in(input_, block);
    norms2_[block] = codec_.kernels().momentum.norm2(in.gradient, input_.grad_scale, in.elements);
  }

  // Returns the fp32 factor that clips the gradient. Adds the blocks in their order, so the factor
  // does not depend on threads.
  float ClipFactor() const {
    double norm2 = 0;
    for (const float block : norms2_) norm2 += static_cast<double>(block);
    if (!std::isfinite(norm2)) norm2 = LargeNorm2();
    const double norm = std::sqrt(norm2);
    return norm <= *codec_.options_.clip ? 1 : static_cast<float>(*codec_.options_.clip / norm);
  }

  // Returns the norm's square in fp64, for gradients whose squares exceed fp32. One thread does it,
  // since that is rare.
  double LargeNorm2() const {
    double norm2 = 0;
    for (const float value : input_.gradient) {
      const auto scaled = static_cast<double>(value * input_.grad_scale);
      norm2 += scaled * scaled;
    }
    return norm2;
  }

  // `pass`: the number of the next pass. A BlockCodec reads a block's gradient only when it encodes
  // it, so momentum can run block by block. Other codecs may sample the gradient when they begin,
  // so a pass of its own must prepare all of it first.
  void BeginMomentum(size_t pass) {
    if (codec_.has_momentum()) prepared_ = workspace_.Take<float>(input_.gradient.size());
    if (!codec_.has_momentum() || codec_.by_blocks_) BeginInner(pass);
  }

  void BeginInner(size_t pass) {
    first_inner_ = pass;
    EncodeInput inner = input_;
    inner.finer = {};  // made of a gradient that was not clipped, or had no momentum
    if (codec_.has_momentum()) {
      inner.gradient = prepared_;
      inner.grad_scale = 1;
      inner.momentum = {};
    }
    inner_ = codec_.inner_->Begin(inner, payload_, workspace_);
  }

  void BlocksOfInner(size_t pass, size_t first, size_t last) {
    if (pass == inner_->passes()) {
      for (size_t block = first; block < last; ++block) Mask(block);
    } else if (pass == 0 && codec_.has_momentum() && codec_.by_blocks_) {
      for (size_t block = first; block < last; ++block) {
        Advance(block);
        inner_->Blocks(0, block, block + 1);
      }
    } else {
      inner_->Blocks(pass, first, last);
    }
  }

  void Advance(size_t block) {
    const BlockInput in(input_, block);
    codec_.kernels().momentum.advance(in.gradient, in.momentum, codec_.Rule(input_.grad_scale),
                                      in.elements, prepared_.data() + block * kBlockElements);
  }

  void Mask(size_t block) {
    const BlockInput in(input_, block);
    alignas(64) float sent[kBlockElements];
    Decode(codec_.format(), payload_.first(stats_.payload_bytes), input_.gradient.size(),
           block * kBlockElements, std::span(sent).first(in.elements));
    codec_.kernels().momentum.mask(sent, in.elements, in.momentum);
  }

  const GradientCodec& codec_;
  EncodeInput input_;  // clipping changes its grad_scale
  const std::span<std::byte> payload_;
  EncodeWorkspace& workspace_;
  size_t first_inner_ = 0;  // the number of the inner run's first pass
  std::span<float> norms2_;
  std::span<float> prepared_;
  std::unique_ptr<EncodeRun> inner_;
  EncodeStats stats_;
};

GradientCodec::GradientCodec(CodecSpec spec, const Kernels& kernels, const GradientOptions& options,
                             std::unique_ptr<Codec> inner)
    : Codec(std::move(spec), kernels, inner->limit()),
      options_(options),
      inner_(std::move(inner)),
      by_blocks_(dynamic_cast<const BlockCodec*>(inner_.get()) != nullptr) {}

MomentumRule GradientCodec::Rule(float grad_scale) const {
  return {.step = options_.momentum == GradientMomentum::kNesterov ? MomentumStep::kNesterov
                                                                   : MomentumStep::kHeavyBall,
          .mu = options_.mu,
          .grad_scale = grad_scale};
}

std::unique_ptr<EncodeRun> GradientCodec::Begin(const EncodeInput& input,
                                                std::span<std::byte> payload,
                                                EncodeWorkspace& workspace) const {
  return std::make_unique<Run>(*this, input, payload, workspace);
}

}  // namespace slimps
