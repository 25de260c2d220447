// SPDX-License-Identifier: Apache-2.0
// What codecs keep of one partition between pushes: the residual e of error feedback, and the
// momentum of codecs that have their own. Both are fp32, in the units that codecs see
// (gradient * grad_scale). They are zeros until the first encoding writes them.
#ifndef SLIMPS_COMPRESS_CODEC_STATE_CODEC_STATE_H_
#define SLIMPS_COMPRESS_CODEC_STATE_CODEC_STATE_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <utility>

#include "compress/codec/codec.h"
#include "proto/base/buffer.h"
#include "proto/base/key.h"

namespace slimps {

// The numbers are those of files (state_file.h).
enum class StateKind : uint32_t { kResidual = 0, kMomentum = 1 };
inline constexpr StateKind kStateKinds[] = {StateKind::kResidual, StateKind::kMomentum};

// Thread-compatible.
class CodecState final {
 public:
  struct Part {
    AlignedBuffer values;  // elements() floats; empty if no codec has wanted them yet
    float bound = 0;       // of every |value|; infinity if unknown

    bool there() const { return values.size() != 0; }
  };

  explicit CodecState(size_t elements = 0) : elements_(elements) {}

  size_t elements() const { return elements_; }
  Part& part(StateKind kind) { return parts_[static_cast<size_t>(kind)]; }
  const Part& part(StateKind kind) const { return parts_[static_cast<size_t>(kind)]; }

  // The states; empty if no codec has wanted them yet. What writes to them without an encoding also
  // sets the bounds of the parts.
  std::span<float> residual() { return part(StateKind::kResidual).values.floats(); }
  std::span<float> momentum() { return part(StateKind::kMomentum).values.floats(); }
  float residual_bound() const { return part(StateKind::kResidual).bound; }
  float momentum_bound() const { return part(StateKind::kMomentum).bound; }

  // Makes a part of zeros. Does nothing if it is there.
  void AddZeros(StateKind kind);

  // Sets the states of `input` and their bounds: the residual if `codec` wants one or there is one,
  // the momentum if `codec` wants it.
  void LendTo(const Codec& codec, EncodeInput& input);

  // Takes the bounds over after a successful encoding with the states that LendTo lent. (A failed
  // one leaves the states as they were.)
  void NoteEncoded(const EncodeStats& stats);

  // Takes over the bound that Codec::AdvanceMomentum returned.
  void NoteMomentum(float bound) { part(StateKind::kMomentum).bound = bound; }

 private:
  size_t elements_ = 0;
  std::array<Part, 2> parts_;   // by StateKind
  bool momentum_lent_ = false;  // by the last LendTo
};

// All states of a worker, by key and partition. A state stays where it is as the map grows.
using CodecStateId = std::pair<KeyId, uint32_t>;
using CodecStates = std::map<CodecStateId, CodecState>;

}  // namespace slimps

#endif  // SLIMPS_COMPRESS_CODEC_STATE_CODEC_STATE_H_
