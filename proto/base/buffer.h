// SPDX-License-Identifier: Apache-2.0
// Memory for tensors and payloads.
//
// AlignedBuffer owns 64-byte aligned bytes. It has exactly one owner and is moved, never copied.
// Payload is an immutable, reference-counted view of bytes. The view keeps the owner of the bytes
// alive, so a message carries them without a copy.
//
//   AlignedBuffer bit_buf(codec.MaxPayloadBytes(n));
//   size_t used = ...;                                    // encode into bit_buf.bytes()
//   Payload payload = Payload::Adopt(std::move(bit_buf), used);
//
// Both are thread-compatible. The bytes of a Payload never change, so any thread may read them.
//
// A process may take large payload buffers from memory of another kind (PayloadMemory), for example
// memory that other processes of the machine can read, so that payloads need not be copied to them.
// A caller that makes a buffer for what will travel says so:
//
//   AlignedBuffer weights = AlignedBuffer::OfFloats(elements, BufferUse::kPayload);
#ifndef SLIMPS_PROTO_BASE_BUFFER_H_
#define SLIMPS_PROTO_BASE_BUFFER_H_

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <span>
#include <utility>

namespace slimps {

inline constexpr size_t kBufferAlignment = 64;
inline constexpr size_t kHugePageBytes = 2 << 20;

enum class BufferUse {
  kPrivate,  // never leaves the process: huge pages where the system has them
  kPayload,  // what messages carry
};

// A source of payload buffers. Thread-safe.
// REQUIRES: it is not destroyed while one of its buffers lives.
class PayloadMemory {
 public:
  // Returns bytes aligned to at least kBufferAlignment; null if there are none. The buffer then
  // takes ordinary memory.
  virtual std::byte* Allocate(size_t bytes) = 0;

  virtual void Free(std::byte* data, size_t bytes) = 0;

 protected:
  ~PayloadMemory() = default;
};

// Payload buffers smaller than this are ordinary memory.
inline constexpr size_t kMinPayloadMemoryBytes = 64 << 10;

// Sets the source of payload buffers for the whole process; null means ordinary memory. Buffers
// made before stay where they are. Thread-safe.
void SetPayloadMemory(PayloadMemory* memory);

// True if payload buffers have a source of their own.
bool HasPayloadMemory();

class AlignedBuffer final {
 public:
  AlignedBuffer() = default;

  // Takes uninitialised bytes. Ordinary memory of at least kHugePageBytes is aligned to
  // kHugePageBytes and lies on huge pages if the system has them. PayloadMemory promises only
  // kBufferAlignment.
  // REQUIRES: a size that a peer declared was checked against its limit.
  // Throws OutOfMemory, a std::bad_alloc.
  explicit AlignedBuffer(size_t size_bytes, BufferUse use = BufferUse::kPrivate);
  AlignedBuffer(AlignedBuffer&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)),
        size_(std::exchange(other.size_, 0)),
        memory_(std::exchange(other.memory_, nullptr)) {}
  AlignedBuffer& operator=(AlignedBuffer&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    std::swap(memory_, other.memory_);
    return *this;
  }
  ~AlignedBuffer() {
    if (memory_ != nullptr) {
      memory_->Free(data_, size_);
    } else {
      std::free(data_);
    }
  }

  static AlignedBuffer OfFloats(size_t elements, BufferUse use = BufferUse::kPrivate) {
    return AlignedBuffer(elements * sizeof(float), use);
  }

  size_t size() const { return size_; }
  std::span<std::byte> bytes() { return {data_, size_}; }
  std::span<const std::byte> bytes() const { return {data_, size_}; }
  std::span<float> floats() { return {reinterpret_cast<float*>(data_), size_ / sizeof(float)}; }
  std::span<const float> floats() const {
    return {reinterpret_cast<const float*>(data_), size_ / sizeof(float)};
  }

 private:
  std::byte* data_ = nullptr;
  size_t size_ = 0;
  PayloadMemory* memory_ = nullptr;  // the source of the bytes; null: ordinary memory
};

class Payload final {
 public:
  Payload() = default;
  // REQUIRES: `owner` keeps `bytes` alive and unchanged while any copy of the view lives.
  Payload(std::shared_ptr<const void> owner, std::span<const std::byte> bytes)
      : owner_(std::move(owner)), bytes_(bytes) {}

  // Takes the first `used` bytes of `buffer`.
  // REQUIRES: used <= buffer.size().
  static Payload Adopt(AlignedBuffer buffer, size_t used) {
    auto owner = std::make_shared<AlignedBuffer>(std::move(buffer));
    std::span<const std::byte> bytes = std::as_const(*owner).bytes().first(used);
    return Payload(std::move(owner), bytes);
  }
  static Payload Copy(std::span<const std::byte> bytes);

  std::span<const std::byte> bytes() const { return bytes_; }
  size_t size() const { return bytes_.size(); }
  bool empty() const { return bytes_.empty(); }
  const std::shared_ptr<const void>& owner() const { return owner_; }

 private:
  std::shared_ptr<const void> owner_;
  std::span<const std::byte> bytes_;
};

}  // namespace slimps

#endif  // SLIMPS_PROTO_BASE_BUFFER_H_
