#include "proto/base/buffer.h"

#include <sys/mman.h>

#include <cstring>
#include <new>

namespace slimps {

AlignedBuffer::AlignedBuffer(size_t size_bytes) : size_(size_bytes) {
  if (size_bytes == 0) return;
  const bool huge = size_bytes >= kHugePageBytes;
  void* data = nullptr;
  if (posix_memalign(&data, huge ? kHugePageBytes : kBufferAlignment, size_bytes) != 0) {
    throw std::bad_alloc();
  }
  data_ = static_cast<std::byte*>(data);
  // Advice: a system without huge pages goes on with small ones.
  if (huge) madvise(data, size_bytes, MADV_HUGEPAGE);
}

Payload Payload::Copy(std::span<const std::byte> bytes) {
  AlignedBuffer buffer(bytes.size());
  if (!bytes.empty()) std::memcpy(buffer.bytes().data(), bytes.data(), bytes.size());
  return Adopt(std::move(buffer), bytes.size());
}

}  // namespace slimps
