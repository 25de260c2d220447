// StateStore: what codecs keep of every partition of every tensor of one worker between its pushes, in fp32 and in the
// units that codecs see (gradient * grad_scale): the residual e of error feedback, and for codecs with momentum of their
// own that too. States are zeros until the first encoding writes them.
//
//   EncodeInput input{.gradient = g, .grad_scale = scale, .gradient_bound = bound};
//   CodecState* state = *states.Prepare(*codec, key, partition, input);   // residual, momentum, their bounds
//   auto result = encoder.Encode({.codec = codec, .input = input, .payload = bit_buf.bytes()});
//   if (result.ok() && state != nullptr) state->NoteEncoded(result->stats);
//
// A residual that is there is given to every codec, so that nothing is stranded when the decision changes: "none" sends
// g + e and clears it. Thread-safe, but one partition's state belongs to one thread at a time: the one that encodes it.
// States stay where they are until Clear, Load, Repartition or the store's end.
#ifndef SLIMPS_COMPRESS_CODEC_STATE_STORE_H_
#define SLIMPS_COMPRESS_CODEC_STATE_STORE_H_

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

// One partition's. Thread-compatible.
class CodecState final {
 public:
  // Empty: no codec has wanted it yet.
  std::span<float> residual() { return residual_.values.floats(); }
  std::span<float> momentum() { return momentum_.values.floats(); }
  // No |residual[i]|, no |momentum[i]| is over these; infinity: not known. Whoever writes to the spans without an encoding
  // calls ForgetBounds.
  float residual_bound() const { return residual_.bound; }
  float momentum_bound() const { return momentum_.bound; }

  // After an encoding with these states. One that failed has left them as they were.
  void NoteEncoded(const EncodeStats& stats);
  // After Codec::AdvanceMomentum.
  void NoteMomentum(float bound) { momentum_.bound = bound; }
  void ForgetBounds();

 private:
  friend class StateStore;
  struct Part {
    AlignedBuffer values;  // elements_ of them, or empty
    float bound = 0;

    bool there() const { return values.size() != 0; }
    void AddZeros(size_t elements);  // leaves values that are there alone
  };

  size_t elements_ = 0;
  Part residual_, momentum_;
  bool momentum_given_ = false;  // to the encoding that Prepare was called for
};

// How a tensor is cut: partition i holds the elements from i * partition_elements on.
struct PartitionGrid {
  size_t elements = 0;  // of the whole tensor
  size_t partition_elements = 0;
};

class StateStore final {
 public:
  // Sets input's residual, where `codec` wants it or there is one, its momentum, where it wants it, and their bounds.
  // nullptr: neither. FailedPrecondition: the partition has states of another length than the gradient.
  [[nodiscard]] absl::StatusOr<CodecState*> Prepare(const Codec& codec, KeyId key,
                                                    uint32_t partition, EncodeInput& input);
  // With a residual and, where asked for, a momentum. FailedPrecondition as above.
  enum class Momentum { kAsIs, kWanted };
  [[nodiscard]] absl::StatusOr<CodecState*> GetOrCreate(KeyId key, uint32_t partition,
                                                        size_t elements,
                                                        Momentum momentum = Momentum::kAsIs);
  // nullptr: this partition was never compressed.
  CodecState* Find(KeyId key, uint32_t partition);
  void Clear();
  size_t TotalBytes() const;

  // ---- For all states at once; no encoding may go on meanwhile.
  // As one file, replaced as a whole. Unavailable: cannot be written.
  [[nodiscard]] absl::Status Save(const std::string& path) const;
  // Replaces all states by the file's; on an error they stay as they were. NotFound, InvalidArgument: not such a file, or
  // numbers that are not finite. DataLoss: cut off or changed.
  [[nodiscard]] absl::Status Load(const std::string& path);
  // The same as bytes: what the file would hold. Throws std::bad_alloc.
  std::string Serialize() const;
  [[nodiscard]] absl::Status Parse(std::string_view content);
  // Takes over all states of `other` in place of its own.
  void ReplaceBy(StateStore&& other);
  // Of which there are states, rising.
  std::vector<KeyId> Keys() const;
  // Brings a tensor's states, made under grid `from`, to grid `to`: element by element, zeros where a partition of `from`
  // had none. InvalidArgument: the grids are not of one tensor, or a state does not fit `from`; nothing has changed.
  [[nodiscard]] absl::Status Repartition(KeyId key, const PartitionGrid& from,
                                         const PartitionGrid& to);

 private:
  using Id = std::pair<KeyId, uint32_t>;
  using States = std::map<Id, CodecState>;  // a state stays where it is as the map grows

  void WriteTo(std::ostream& file) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // `path` is for messages.
  absl::Status ReadFrom(const std::string& path, std::istream& file, uint64_t bytes);
  // The partition's entry, made where there is none.
  absl::StatusOr<CodecState*> Entry(KeyId key, uint32_t partition, size_t elements);
  // The key's states under `from`, one part of them, cut by `to` into `recut`.
  static void Recut(const States& old, CodecState::Part CodecState::*part, KeyId key,
                    const PartitionGrid& from, const PartitionGrid& to, States& recut);

  mutable Mutex mutex_;
  States states_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace slimps

#endif  // SLIMPS_COMPRESS_CODEC_STATE_STORE_H_
