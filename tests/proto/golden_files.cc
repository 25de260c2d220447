// SPDX-License-Identifier: Apache-2.0
#include "tests/proto/golden_files.h"

#include <algorithm>
#include <cstring>

#include "absl/strings/str_format.h"

namespace slimps {

std::string ToFileBytes(const Frame& frame) {
  std::string file;
  for (const Payload& part : frame) {
    const uint32_t size = static_cast<uint32_t>(part.size());
    file.append(reinterpret_cast<const char*>(&size), sizeof(size));
    file.append(reinterpret_cast<const char*>(part.bytes().data()), part.size());
  }
  return file;
}

Frame FromFileBytes(const std::string& bytes) {
  Frame frame;
  for (size_t at = 0; at < bytes.size();) {
    uint32_t size = 0;
    std::memcpy(&size, bytes.data() + at, sizeof(size));
    frame.push_back(
        Payload::Copy(std::as_bytes(std::span(bytes).subspan(at + sizeof(size), size))));
    at += sizeof(size) + size;
  }
  return frame;
}

std::string HexListing(std::span<const std::byte> bytes) {
  std::string listing;
  for (size_t line = 0; line < bytes.size(); line += 16) {
    const std::span<const std::byte> row =
        bytes.subspan(line, std::min<size_t>(16, bytes.size() - line));
    std::string hex, text;
    for (const std::byte b : row) {
      const unsigned value = std::to_integer<unsigned>(b);
      absl::StrAppendFormat(&hex, "%02x ", value);
      text.push_back(value >= 0x20 && value < 0x7f ? static_cast<char>(value) : '.');
    }
    absl::StrAppendFormat(&listing, "%04x  %-48s %s\n", line, hex, text);
  }
  return listing;
}

std::vector<std::span<const std::byte>> Spans(const Frame& frame) {
  std::vector<std::span<const std::byte>> spans;
  for (const Payload& part : frame) spans.push_back(part.bytes());
  return spans;
}

}  // namespace slimps
