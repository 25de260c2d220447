// SPDX-License-Identifier: Apache-2.0
// What codecs with momentum check before they encode. x is residual + p, with p from a MomentumRule
// (compress/kernels/momentum.h). Codec calls these for its own functions of similar names.
// Thread-safe: pure functions, apart from the states that they update.
#ifndef SLIMPS_COMPRESS_CODEC_MOMENTUM_INPUT_H_
#define SLIMPS_COMPRESS_CODEC_MOMENTUM_INPUT_H_

#include <cstddef>
#include <span>

#include "absl/status/statusor.h"
#include "compress/codec/codec.h"
#include "compress/kernels/kernels.h"

namespace slimps {

// As Codec::KnownEncodable, from the bounds of gradient, residual and momentum.
bool KnownEncodable(const EncodeInput& input, const MomentumRule& rule, float limit);

// As Codec::FindUnencodable.
// REQUIRES: the momentum is as long as the gradient.
size_t FindUnencodable(const Kernels& kernels, const EncodeInput& input, const MomentumRule& rule,
                       float limit, size_t first_block, size_t last_block);

// As Codec::AdvanceMomentum, by `rule`.
absl::StatusOr<float> StepMomentum(const Kernels& kernels, const EncodeInput& input,
                                   const MomentumRule& rule, std::span<float> out);

// Returns a bound of every |momentum[i]| after a step, from the bounds before it.
float MomentumBoundAfter(const EncodeInput& input, const MomentumRule& rule);

}  // namespace slimps

#endif  // SLIMPS_COMPRESS_CODEC_MOMENTUM_INPUT_H_
