// The fp32 weights of one partition by version, as workers see them, shared with outgoing messages without a copy.
//
//   weights.current()          ---Share()--->  Payload (read by the I/O thread until the message has left)
//   weights.BeginNext(keep)    a buffer that nobody reads: the retired one, or a new one while unsent messages hold all
//   weights.Commit()           it becomes current, version + 1
//
// A version may come with its encoded change from the one before (BeginChange, CommitChange): whoever holds that one is
// sent the change, anybody else the weights.
//
// The version before the current one is kept when asked, so that a pull that comes late still gets exactly the version
// it names: a run's bits must not depend on when its messages arrive.
#ifndef SLIMPS_SERVER_VERSIONED_WEIGHTS_H_
#define SLIMPS_SERVER_VERSIONED_WEIGHTS_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "compress/format/format.h"
#include "proto/base/buffer.h"
#include "proto/frame.h"

namespace slimps {

// A value as it travels, with the hash of its bytes.
struct WireValue {
  uint64_t version = 0;
  PayloadFormat format = PayloadFormat::kRawF32;
  Payload payload;
  uint64_t hash = 0;  // 0: not asked for
  std::optional<uint64_t>
      base_version;  // the payload is to be added to this version; nullopt: it is the value itself
  uint64_t encode_ns = 0;  // of a change
};

// What became of a change's encoding.
struct EncodedChange {
  PayloadFormat format = PayloadFormat::kLevels;
  size_t bytes = 0;
  uint64_t encode_ns = 0;
};

enum class PreviousVersion { kKeep, kDrop };

// Owned by the shard thread; the payloads that it shares may be read and dropped on any thread.
class VersionedWeights final {
 public:
  // Version 0, uninitialised. `format` is how values travel: raw fp32, fp16 or bf16; a version that half precision would
  // turn into infinity somewhere travels in fp32.
  VersionedWeights(size_t elements, PayloadFormat format,
                   PayloadHashing hashing = PayloadHashing::kXxh3);

  uint64_t version() const { return current_->version; }
  std::span<float> MutableInitial() { return current_->fp32.floats(); }
  std::span<const float> current() const { return current_->fp32.floats(); }

  // Where the next version is to be written; it may be the current buffer itself when that is not kept and not being
  // read. A version begun but never committed is given up.
  std::span<float> BeginNext(PreviousVersion previous);
  // Where the encoded change from the current version to the one begun is to be written. REQUIRES: BeginNext(kKeep)
  // was called since the last commit.
  std::span<std::byte> BeginChange(size_t bytes);
  // The version begun is current, and travels in the format given here or else in that of construction. REQUIRES:
  // BeginNext was called since the last commit.
  void Commit() { Commit(format_); }
  void Commit(PayloadFormat format);
  // It comes with the change written before; the weights travel in fp32. REQUIRES: BeginChange was called too.
  void CommitChange(const EncodedChange& change);

  // Whether `version` is the current or the kept one.
  bool Holds(uint64_t version) const;
  // Version `wanted`; as a change if there is one from version `held`. Conversion to half precision and hashing happen
  // once per version. REQUIRES: Holds(wanted).
  WireValue Share(uint64_t wanted, std::optional<uint64_t> held = std::nullopt);
  // Whether the current version travels in half precision; workers then see other numbers than current(). Not of a
  // version that is being written.
  bool IsConverted();
  // The current version as workers see it.
  void CopySeen(std::span<float> out);
  // Of version `wanted`, the elements from `first` on as workers see them. REQUIRES: Holds(wanted).
  void CopySeenPart(uint64_t wanted, size_t first, std::span<float> out);

  size_t buffer_count() const;
  // How many were ever made: touching fresh memory costs more than a round's arithmetic, so this is to stand still.
  size_t buffers_made() const { return buffers_made_; }

 private:
  struct Buffer {
    explicit Buffer(size_t elements)
        : fp32(AlignedBuffer::OfFloats(elements, BufferUse::kPayload)) {}
    AlignedBuffer fp32;
    AlignedBuffer half;  // empty until the first version is asked for in half precision; then kept
    uint64_t version = 0;
    // Counts leases not yet dropped. Dropping one releases the reads made under it to whoever sees 0 here.
    std::atomic<int> leases{0};
    std::weak_ptr<const void> lease;  // the newest, shared by all payloads while it lives
    // Of the bytes that travel, once asked for, and what they are.
    std::optional<uint64_t> hash;
    PayloadFormat wanted_format = PayloadFormat::kRawF32;
    PayloadFormat format = PayloadFormat::kRawF32;
    AlignedBuffer change_bytes;  // empty until the first change; then kept
    std::optional<EncodedChange> change;
    std::optional<uint64_t> change_hash;
  };

  // REQUIRES: Holds(version).
  const std::shared_ptr<Buffer>& Find(uint64_t version) const;
  static Payload Lend(const std::shared_ptr<Buffer>& buffer, std::span<const std::byte> bytes);
  // The bytes of `buffer` that travel, in buffer.format: converted first where that is not fp32.
  std::span<const std::byte> WireBytes(Buffer& buffer) const;
  static PayloadFormat ChooseFormat(PayloadFormat wanted, std::span<const float> values);
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
  std::vector<std::shared_ptr<Buffer>> retired_;  // to be used again once unread
  size_t buffers_made_ = 1;
};

}  // namespace slimps

#endif  // SLIMPS_SERVER_VERSIONED_WEIGHTS_H_
