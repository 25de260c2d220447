// SPDX-License-Identifier: Apache-2.0
// The fp32 weights of one partition by version, as workers see them. Outgoing messages share them
// without a copy.
//
//   weights.current()        ---Share()--->  Payload (the I/O thread reads it until it is sent)
//   weights.BeginNext(keep)  a buffer that nobody reads: a retired one, or a new one if unsent
//                            messages hold all of them
//   weights.Commit()         makes it current: version + 1
//
// A version may come with its encoded change from the version before (BeginChange, CommitChange). A
// puller that holds the version before is sent the change. Others are sent the weights. Or it may
// be a payload itself (CommitEncoded), which each puller decodes.
//
// The version before the current one is kept when asked. So a late pull still gets exactly the
// version that it names: a run's bits must not depend on when its messages arrive.
#ifndef SLIMPS_SERVER_ROUND_VERSIONED_WEIGHTS_H_
#define SLIMPS_SERVER_ROUND_VERSIONED_WEIGHTS_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "compress/format/format.h"
#include "proto/base/buffer.h"
#include "proto/frame.h"
#include "server/saved/image.h"

namespace slimps {

// A value as it travels, with the hash of its bytes.
struct WireValue {
  uint64_t version = 0;
  PayloadFormat format = PayloadFormat::kRawF32;
  Payload payload;
  uint64_t hash = 0;  // 0: not wanted
  // The payload is to be added to this version. nullopt: the payload is the value itself.
  std::optional<uint64_t> base_version;
  uint64_t encode_ns = 0;                   // time that encoding the change took
  std::vector<uint32_t> contributors = {};  // of an auxiliary key's round (Partition::Share)
};

// The result of encoding a change.
struct EncodedChange {
  PayloadFormat format = PayloadFormat::kLevels;
  size_t bytes = 0;
  uint64_t encode_ns = 0;
};

enum class PreviousVersion { kKeep, kDrop };

// Owned by the shard thread. The payloads that it shares may be read and dropped on any thread.
class VersionedWeights final {
 public:
  // Makes version 0, uninitialised. `format` is how values travel: raw fp32, fp16 or bf16. A
  // version in which half precision would turn some value into infinity travels in fp32.
  VersionedWeights(size_t elements, PayloadFormat format,
                   PayloadHashing hashing = PayloadHashing::kXxh3);

  uint64_t version() const { return current_->version; }
  std::span<float> MutableInitial() { return current_->fp32.floats(); }
  std::span<const float> current() const { return Decoded(*current_); }

  // Returns where to write the next version. It may be the current buffer itself, if that is not to
  // be kept and nobody reads it. Gives up a version that was begun and not committed.
  std::span<float> BeginNext(PreviousVersion previous);

  // Returns where to write the encoded change from the current version to the one begun, or the
  // latter as a payload.
  // REQUIRES: BeginNext(kKeep) was called since the last commit.
  std::span<std::byte> BeginChange(size_t bytes);

  // Makes the version begun current. It travels in `format`, or in the constructor's.
  // REQUIRES: BeginNext was called since the last commit.
  void Commit() { Commit(format_); }
  void Commit(PayloadFormat format);

  // Makes the version begun current, with the change written before. Its weights travel in fp32.
  // REQUIRES: BeginChange was called too.
  void CommitChange(const EncodedChange& change);

  // Makes the version begun current. It is what the payload decodes to that was written to
  // BeginChange's memory, and travels as that. It is decoded here only if its floats are asked for.
  // REQUIRES: BeginChange was called too; the payload is valid.
  void CommitEncoded(const EncodedChange& payload);

  // True if `version` is the current or the kept one.
  bool Holds(uint64_t version) const;

  // Returns version `wanted`, as a change if it has one and `held` is the version before it.
  // Converts to half precision and hashes once per version.
  // REQUIRES: Holds(wanted).
  WireValue Share(uint64_t wanted, std::optional<uint64_t> held = std::nullopt);

  // True if the current version travels in half precision: workers then see other numbers than
  // current(). Do not call while the version is being written.
  bool IsConverted();

  // Copies the current version as workers see it.
  void CopySeen(std::span<float> out);

  // Copies elements of version `wanted`, from `first` on, as workers see them.
  // REQUIRES: Holds(wanted).
  void CopySeenPart(uint64_t wanted, size_t first, std::span<float> out);

  // Saves the versions that are held; kCheckpoint: the current one alone. They are not copied but
  // lent, as to messages.
  void Save(ImageUse use, saved::Weights* fields, PartitionImage* image) const;

  // Takes over what Save saved.
  // REQUIRES: nothing was committed.
  // DataLoss: the image has no such versions.
  [[nodiscard]] absl::Status Restore(const saved::Weights& fields, const PartitionImage& image);

  size_t buffer_count() const;

  // How many buffers were ever made. It should stand still: touching fresh memory costs more than a
  // round's arithmetic.
  size_t buffers_made() const { return buffers_made_; }

 private:
  struct Buffer {
    explicit Buffer(size_t elements)
        : fp32(AlignedBuffer::OfFloats(elements, BufferUse::kPayload)) {}
    AlignedBuffer fp32;
    AlignedBuffer half;  // empty until first needed; then kept
    uint64_t version = 0;
    // Counts leases not yet dropped. Whoever reads 0 here sees all reads under dropped leases done.
    std::atomic<int> leases{0};
    std::weak_ptr<const void> lease;  // the newest, shared by all payloads while it lives
    // The hash of the bytes that travel, once wanted, and their format.
    std::optional<uint64_t> hash;
    PayloadFormat wanted_format = PayloadFormat::kRawF32;
    PayloadFormat format = PayloadFormat::kRawF32;
    AlignedBuffer change_bytes;  // empty until the first change; then kept
    std::optional<EncodedChange> change;
    std::optional<uint64_t> change_hash;
    bool is_encoded = false;  // `change` is the version itself
    bool is_decoded = false;  // and fp32 has it
  };

  static void SaveBuffer(const std::shared_ptr<Buffer>& buffer, ImageUse use,
                         saved::Version* fields, PartitionImage* image);
  absl::StatusOr<std::shared_ptr<Buffer>> RestoreBuffer(const saved::Version& fields,
                                                        const PartitionImage& image) const;
  // REQUIRES: Holds(version).
  const std::shared_ptr<Buffer>& Find(uint64_t version) const;
  static Payload Lend(const std::shared_ptr<Buffer>& buffer, std::span<const std::byte> bytes);
  // Returns the bytes of `buffer` that travel, in buffer.format. Converts them first if that is not
  // fp32.
  std::span<const std::byte> WireBytes(Buffer& buffer) const;
  static PayloadFormat ChooseFormat(PayloadFormat wanted, std::span<const float> values);
  // Returns the buffer's version in fp32, which is decoded first if it is a payload.
  std::span<const float> Decoded(Buffer& buffer) const;
  WireValue ShareBuffer(const std::shared_ptr<Buffer>& buffer) const;
  WireValue ShareChange(const std::shared_ptr<Buffer>& buffer) const;
  uint64_t HashOf(std::span<const std::byte> bytes) const;

  const size_t elements_;
  const PayloadFormat format_;
  const PayloadHashing hashing_;
  std::shared_ptr<Buffer> current_;
  std::shared_ptr<Buffer> previous_;              // may be null
  std::shared_ptr<Buffer> next_;                  // between BeginNext and Commit
  bool keep_current_ = true;                      // what BeginNext was asked for
  std::vector<std::shared_ptr<Buffer>> retired_;  // used again once nobody reads them
  size_t buffers_made_ = 1;
};

}  // namespace slimps

#endif  // SLIMPS_SERVER_ROUND_VERSIONED_WEIGHTS_H_
