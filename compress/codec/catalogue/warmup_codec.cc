// SPDX-License-Identifier: Apache-2.0
#include "compress/codec/catalogue/warmup_codec.h"

#include <algorithm>
#include <utility>

namespace slimps {

WarmupCodec::WarmupCodec(CodecSpec spec, const Kernels& kernels, uint64_t rounds_per_step,
                         std::vector<std::unique_ptr<Codec>> steps)
    : Codec(std::move(spec), kernels, steps.back()->limit()),
      rounds_per_step_(rounds_per_step),
      steps_(std::move(steps)) {}

const Codec& WarmupCodec::At(uint64_t round) const {
  if (round == 0) return last();
  const uint64_t step = (round - 1) / rounds_per_step_;
  return step < steps_.size() ? *steps_[step] : last();
}

size_t WarmupCodec::MaxPayloadBytes(size_t elements) const {
  size_t most = 0;
  for (const auto& step : steps_) most = std::max(most, step->MaxPayloadBytes(elements));
  return most;
}

}  // namespace slimps
