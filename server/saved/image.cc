// SPDX-License-Identifier: Apache-2.0
#include "server/saved/image.h"

#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/base/status_macros.h"

namespace slimps {

uint32_t PartitionImage::Add(Payload part) {
  if (part.empty()) return 0;
  parts.push_back(std::move(part));
  return static_cast<uint32_t>(parts.size());
}

uint32_t PartitionImage::AddCopy(std::span<const std::byte> bytes) {
  if (bytes.empty()) return 0;
  AlignedBuffer copy(bytes.size());
  std::memcpy(copy.bytes().data(), bytes.data(), bytes.size());
  return Add(Payload::Adopt(std::move(copy), bytes.size()));
}

absl::StatusOr<Payload> PartitionImage::Part(uint32_t number) const {
  if (number == 0) return Payload();
  if (number <= parts.size()) return parts[number - 1];
  return BadImage(absl::StrCat("part ", number, " of ", parts.size()));
}

absl::StatusOr<Payload> PartitionImage::PayloadOf(PayloadFormat format, uint32_t number,
                                                  size_t elements) const {
  SLIMPS_ASSIGN_OR_RETURN(Payload payload, Part(number));
  const absl::Status valid = ValidatePayload(format, payload.bytes(), elements);
  if (valid.ok()) return payload;
  return BadImage(absl::StrCat("part ", number, ": ", valid.message()));
}

absl::Status PartitionImage::CopyTo(uint32_t number, std::span<std::byte> out) const {
  SLIMPS_ASSIGN_OR_RETURN(const Payload part, Part(number));
  if (part.size() != out.size()) {
    return BadImage(
        absl::StrCat("part ", number, ": expected ", out.size(), " bytes, got ", part.size()));
  }
  if (!out.empty()) std::memcpy(out.data(), part.bytes().data(), out.size());
  return absl::OkStatus();
}

size_t PartitionImage::PartBytes() const {
  size_t bytes = 0;
  for (const Payload& part : parts) bytes += part.size();
  return bytes;
}

absl::StatusOr<PayloadFormat> RestoreFormat(wire::Format format) {
  // The values of both are equal.
  if (wire::Format_IsValid(format)) return static_cast<PayloadFormat>(format);
  return BadImage(absl::StrCat("payload format ", static_cast<int>(format)));
}

absl::Status BadImage(absl::string_view what) {
  return absl::DataLossError(absl::StrCat("image of a partition: ", what));
}

}  // namespace slimps
