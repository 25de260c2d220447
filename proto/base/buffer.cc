// SPDX-License-Identifier: Apache-2.0
#include "proto/base/buffer.h"

#include <sys/mman.h>

#include <atomic>
#include <cstring>

#include "proto/base/out_of_memory.h"

namespace slimps {
namespace {

// Publishes the object that it points to.
std::atomic<PayloadMemory*> payload_memory{nullptr};

}  // namespace

void SetPayloadMemory(PayloadMemory* memory) {
  payload_memory.store(memory, std::memory_order_release);
}

bool HasPayloadMemory() { return payload_memory.load(std::memory_order_acquire) != nullptr; }

AlignedBuffer::AlignedBuffer(size_t size_bytes, BufferUse use) : size_(size_bytes) {
  if (size_bytes == 0) return;
  if (use == BufferUse::kPayload && size_bytes >= kMinPayloadMemoryBytes) {
    PayloadMemory* const memory = payload_memory.load(std::memory_order_acquire);
    data_ = memory == nullptr ? nullptr : memory->Allocate(size_bytes);
    memory_ = data_ == nullptr ? nullptr : memory;
    if (data_ != nullptr) return;
  }
  const bool huge = size_bytes >= kHugePageBytes;
  void* data = nullptr;
  if (posix_memalign(&data, huge ? kHugePageBytes : kBufferAlignment, size_bytes) != 0) {
    throw OutOfMemory(size_bytes);
  }
  data_ = static_cast<std::byte*>(data);
  // Only advice: a system without huge pages uses small ones.
  if (huge) madvise(data, size_bytes, MADV_HUGEPAGE);
}

Payload Payload::Copy(std::span<const std::byte> bytes) {
  AlignedBuffer buffer(bytes.size(), BufferUse::kPayload);
  if (!bytes.empty()) std::memcpy(buffer.bytes().data(), bytes.data(), bytes.size());
  return Adopt(std::move(buffer), bytes.size());
}

}  // namespace slimps
