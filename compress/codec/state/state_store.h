// SPDX-License-Identifier: Apache-2.0
// StateStore: the states that codecs keep between pushes, for every partition of every tensor of
// one worker (codec_state.h).
//
//   EncodeInput input{.gradient = g, .grad_scale = scale, .gradient_bound = bound};
//   CodecState* state = *states.Prepare(*codec, key, partition, input);  // states and their bounds
//   auto stats = encoder.Encode({.codec = codec, .input = input, .payload = bit_buf.bytes()});
//   if (stats.ok() && state != nullptr) state->NoteEncoded(*stats);
//
// A residual that exists is given to every codec, so nothing is stranded when the decision changes:
// "none" sends g + e and clears it.
//
// Thread-safe, but one partition's state belongs to one thread at a time: the one that encodes it.
// A state stays where it is until Parse, ReplaceBy, Repartition or the store's end.
#ifndef SLIMPS_COMPRESS_CODEC_STATE_STATE_STORE_H_
#define SLIMPS_COMPRESS_CODEC_STATE_STATE_STORE_H_

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "compress/codec/codec.h"
#include "compress/codec/state/codec_state.h"
#include "proto/base/key.h"
#include "proto/base/mutex.h"
#include "proto/base/partition_grid.h"

namespace slimps {

// Thread-safe, see above.
class StateStore final {
 public:
  // Sets the states of `input` and their bounds (CodecState::LendTo).
  // Returns the partition's state; nullptr if `codec` wants neither and the partition has no state.
  // FailedPrecondition: the partition has states of another length than the gradient.
  [[nodiscard]] absl::StatusOr<CodecState*> Prepare(const Codec& codec, KeyId key,
                                                    uint32_t partition, EncodeInput& input);

  // Returns the residual of a key that stands for no gradient: so many numbers that a codec keeps,
  // zeros at first.
  // FailedPrecondition: the key has states of another length.
  [[nodiscard]] absl::StatusOr<std::span<float>> Keep(KeyId key, size_t elements);

  // Returns the partition's state; nullptr if it was never compressed.
  CodecState* Find(KeyId key, uint32_t partition);

  // ---- Operations on all states. REQUIRES: no encoding runs meanwhile.
  //
  // Returns all states as bytes (state_file.h). Throws std::bad_alloc.
  std::string Serialize() const;

  // Replaces all states by those that Serialize wrote. On an error they stay as they were.
  // InvalidArgument: they are no codec states, or hold numbers that are not finite.
  // DataLoss: they are cut off or changed.
  [[nodiscard]] absl::Status Parse(std::string_view content);

  // Replaces all states by those of `other`, which is then empty.
  void ReplaceBy(StateStore&& other);

  // Returns the keys that have states, in rising order.
  std::vector<KeyId> Keys() const;

  // Drops a key's states.
  void Forget(KeyId key);

  // Cuts a tensor's states, made under grid `from`, anew under grid `to` (RepartitionStates).
  [[nodiscard]] absl::Status Repartition(KeyId key, const PartitionGrid& from,
                                         const PartitionGrid& to);

 private:
  absl::StatusOr<CodecState*> StateOf(KeyId key, uint32_t partition, size_t elements)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  mutable Mutex mutex_;
  CodecStates states_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace slimps

#endif  // SLIMPS_COMPRESS_CODEC_STATE_STATE_STORE_H_
