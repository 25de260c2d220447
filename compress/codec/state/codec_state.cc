// SPDX-License-Identifier: Apache-2.0
#include "compress/codec/state/codec_state.h"

#include <algorithm>

namespace slimps {

void CodecState::AddZeros(StateKind kind) {
  AlignedBuffer& values = part(kind).values;
  if (values.size() == elements_ * sizeof(float)) return;
  values = AlignedBuffer::OfFloats(elements_);
  std::ranges::fill(values.floats(), 0.0f);
}

void CodecState::LendTo(const Codec& codec, EncodeInput& input) {
  if (codec.wants_residual()) AddZeros(StateKind::kResidual);
  if (codec.wants_momentum()) AddZeros(StateKind::kMomentum);
  input.residual = residual();
  input.residual_bound = residual_bound();
  momentum_lent_ = codec.wants_momentum();
  if (!momentum_lent_) return;
  input.momentum = momentum();
  input.momentum_bound = momentum_bound();
}

void CodecState::NoteEncoded(const EncodeStats& stats) {
  part(StateKind::kResidual).bound = stats.ResidualBound();
  if (momentum_lent_) NoteMomentum(stats.momentum_bound);
}

}  // namespace slimps
