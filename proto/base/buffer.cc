#include "proto/base/buffer.h"

#include <cstring>

namespace slimps {

Payload Payload::Copy(std::span<const std::byte> bytes) {
  AlignedBuffer buffer(bytes.size());
  if (!bytes.empty()) std::memcpy(buffer.bytes().data(), bytes.data(), bytes.size());
  return Adopt(std::move(buffer), bytes.size());
}

}  // namespace slimps
