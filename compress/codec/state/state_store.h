// SPDX-License-Identifier: Apache-2.0
// StateStore: the states that codecs keep between pushes, for every partition of every tensor of
// one worker: the residual e of error feedback, and the momentum of codecs that have their own.
// States are fp32, in the units that codecs see (gradient * grad_scale). They are zeros until the
// first encoding writes them.
//
//   EncodeInput input{.gradient = g, .grad_scale = scale, .gradient_bound = bound};
//   CodecState* state = *states.Prepare(*codec, key, partition, input);  // states and their bounds
//   auto result = encoder.Encode({.codec = codec, .input = input, .payload = bit_buf.bytes()});
//   if (result.ok() && state != nullptr) state->NoteEncoded(result->stats);
//
// A residual that exists is given to every codec, so nothing is stranded when the decision changes:
// "none" sends g + e and clears it.
//
// Thread-safe, but one partition's state belongs to one thread at a time: the one that encodes it.
// A state stays where it is until Clear, Load, Parse, ReplaceBy, Repartition or the store's end.
#ifndef SLIMPS_COMPRESS_CODEC_STATE_STATE_STORE_H_
#define SLIMPS_COMPRESS_CODEC_STATE_STATE_STORE_H_

#include <cstddef>
#include <cstdint>
#include <iosfwd>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "compress/codec/codec.h"
#include "proto/base/buffer.h"
#include "proto/base/key.h"
#include "proto/base/mutex.h"

namespace slimps {

// One partition's states. Thread-compatible.
class CodecState final {
 public:
  // The states; empty if no codec has wanted them yet.
  std::span<float> residual() { return residual_.values.floats(); }
  std::span<float> momentum() { return momentum_.values.floats(); }

  // Bounds of every |residual[i]| and |momentum[i]|; infinity if unknown. Whoever writes to the
  // spans without an encoding calls ForgetBounds.
  float residual_bound() const { return residual_.bound; }
  float momentum_bound() const { return momentum_.bound; }

  // Takes the bounds over after a successful encoding with these states. (A failed one leaves the
  // states as they were.)
  void NoteEncoded(const EncodeStats& stats);

  // Takes over the bound that Codec::AdvanceMomentum returned.
  void NoteMomentum(float bound) { momentum_.bound = bound; }

  void ForgetBounds();

 private:
  friend class StateStore;
  struct Part {
    AlignedBuffer values;  // elements_ floats, or empty
    float bound = 0;

    bool there() const { return values.size() != 0; }
    void AddZeros(size_t elements);  // does nothing if the values exist
  };

  size_t elements_ = 0;
  Part residual_, momentum_;
  bool momentum_given_ = false;  // the last Prepare handed out the momentum
};

// How a tensor is cut: partition i begins at element i * partition_elements.
struct PartitionGrid {
  size_t elements = 0;  // of the whole tensor
  size_t partition_elements = 0;
};

// Thread-safe, see above.
class StateStore final {
 public:
  // Sets the states of `input` and their bounds: the residual if `codec` wants one or the partition
  // has one, the momentum if `codec` wants it.
  // Returns the partition's state; nullptr if `codec` wants neither and the partition has no state.
  // FailedPrecondition: the partition has states of another length than the gradient.
  [[nodiscard]] absl::StatusOr<CodecState*> Prepare(const Codec& codec, KeyId key,
                                                    uint32_t partition, EncodeInput& input);

  // Returns the partition's state, which then has a residual and, with kWanted, a momentum.
  // FailedPrecondition: as for Prepare.
  enum class Momentum { kAsIs, kWanted };
  [[nodiscard]] absl::StatusOr<CodecState*> GetOrCreate(KeyId key, uint32_t partition,
                                                        size_t elements,
                                                        Momentum momentum = Momentum::kAsIs);

  // Returns the partition's state; nullptr if it was never compressed.
  CodecState* Find(KeyId key, uint32_t partition);

  void Clear();

  size_t TotalBytes() const;

  // ---- Operations on all states. REQUIRES: no encoding runs meanwhile.
  //
  // Writes all states to one file, which is replaced as a whole.
  // Unavailable: the file cannot be written.
  [[nodiscard]] absl::Status Save(const std::string& path) const;

  // Replaces all states by the file's. On an error they stay as they were.
  // NotFound: the file cannot be opened.
  // InvalidArgument: it is no file of codec states, or holds numbers that are not finite.
  // DataLoss: it is cut off or changed.
  [[nodiscard]] absl::Status Load(const std::string& path);

  // Returns the bytes that Save would write. Throws std::bad_alloc.
  std::string Serialize() const;

  // Replaces all states by those of Serialize. Errors: as for Load, without NotFound.
  [[nodiscard]] absl::Status Parse(std::string_view content);

  // Replaces all states by those of `other`, which is then empty.
  void ReplaceBy(StateStore&& other);

  // Returns the keys that have states, in rising order.
  std::vector<KeyId> Keys() const;

  // Cuts a tensor's states, made under grid `from`, anew under grid `to`. Each element keeps its
  // values; elements of partitions of `from` without a state get zeros.
  // InvalidArgument: the grids are not of one tensor, or a state does not fit `from`. Nothing has
  // changed.
  [[nodiscard]] absl::Status Repartition(KeyId key, const PartitionGrid& from,
                                         const PartitionGrid& to);

 private:
  using Id = std::pair<KeyId, uint32_t>;
  using States = std::map<Id, CodecState>;  // a state stays where it is as the map grows

  void WriteTo(std::ostream& file) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // `path` is for messages.
  absl::Status ReadFrom(const std::string& path, std::istream& file, uint64_t bytes);
  // Returns the partition's entry; makes it if there is none.
  absl::StatusOr<CodecState*> Entry(KeyId key, uint32_t partition, size_t elements);
  // Cuts one part of the key's states, which lie under `from`, by `to` into `recut`.
  static void Recut(const States& old, CodecState::Part CodecState::*part, KeyId key,
                    const PartitionGrid& from, const PartitionGrid& to, States& recut);

  mutable Mutex mutex_;
  States states_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace slimps

#endif  // SLIMPS_COMPRESS_CODEC_STATE_STATE_STORE_H_
