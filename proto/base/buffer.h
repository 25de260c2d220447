// Memory for tensors and payloads.
//
// AlignedBuffer owns 64-byte aligned bytes; exactly one owner, moved, never copied. Payload is an immutable,
// reference-counted view of bytes whose owner is kept alive by the view: what a message carries, zero-copy.
//
//   AlignedBuffer bit_buf(codec.MaxPayloadBytes(n));
//   size_t used = ...;                                    // encode into bit_buf.bytes()
//   Payload payload = Payload::Adopt(std::move(bit_buf), used);
//
// Both are thread-compatible; a Payload's bytes never change, so any thread may read them.
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

class AlignedBuffer final {
 public:
  AlignedBuffer() = default;
  // Uninitialised bytes; from kHugePageBytes on, aligned to that and on huge pages where the system has them. Throws
  // std::bad_alloc; sizes that a peer declared must meet their limit first.
  explicit AlignedBuffer(size_t size_bytes);
  AlignedBuffer(AlignedBuffer&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}
  AlignedBuffer& operator=(AlignedBuffer&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    return *this;
  }
  ~AlignedBuffer() { std::free(data_); }

  static AlignedBuffer OfFloats(size_t elements) { return AlignedBuffer(elements * sizeof(float)); }

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
};

class Payload final {
 public:
  Payload() = default;
  // `owner` keeps `bytes` alive and unchanged for as long as any copy of the view lives.
  Payload(std::shared_ptr<const void> owner, std::span<const std::byte> bytes)
      : owner_(std::move(owner)), bytes_(bytes) {}

  // Takes the first `used` bytes of `buffer`. REQUIRES: used <= buffer.size().
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
