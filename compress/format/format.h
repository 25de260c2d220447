// SPDX-License-Identifier: Apache-2.0
// Payload formats: what a payload's bytes mean, whoever made them. A server needs only these
// functions to decode.
//
//   if (absl::Status status = ValidatePayload(format, payload, n); !status.ok()) return status;
//   DecodeAdd(format, payload, n, /*first=*/0, sum);   // sum: n floats
//
// Tensors are handled in blocks of kBlockElements on a fixed grid. So results do not depend on
// threads, and one block of every worker's payload fits into cache. All functions are thread-safe.
// They allocate nothing except an error's message.
#ifndef SLIMPS_COMPRESS_FORMAT_FORMAT_H_
#define SLIMPS_COMPRESS_FORMAT_FORMAT_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "absl/status/status.h"

namespace slimps {

// The values equal those of wire::Format.
enum class PayloadFormat : uint8_t {
  kAbsent = 0,
  kRawF32 = 1,
  kRawF16 = 2,
  kRawBf16 = 3,
  kLevels = 4,   // levels.h
  kSparse = 5,   // sparse.h and bins.h: the first byte tells which
  kLowRank = 6,  // low_rank.h
  kRows = 7,     // rows.h
  kRotated = 8,  // rotated.h and lanes.h: the first byte tells which
};

inline constexpr size_t kBlockElements = 4096;

struct PayloadView {
  PayloadFormat format = PayloadFormat::kAbsent;
  std::span<const std::byte> bytes;
};

// True for the formats of codecs: not for raw numbers, and not for rows, which are raw too.
constexpr bool IsEncoded(PayloadFormat format) {
  return format == PayloadFormat::kLevels || format == PayloadFormat::kSparse ||
         format == PayloadFormat::kLowRank || format == PayloadFormat::kRotated;
}

std::string_view FormatName(PayloadFormat format);

// Returns the largest number that a raw format does not round to infinity. It lies one fp32 step
// below the number half a step above the format's largest finite one. For fp32 it is the
// largest finite number.
constexpr float LargestRawValue(PayloadFormat format) {
  if (format == PayloadFormat::kRawF16) return 0x1.ffdffep15f;  // under 65520
  if (format == PayloadFormat::kRawBf16) return 0x1.fefffep127f;
  return 0x1.fffffep127f;
}

// Checks every size, count and field of an untrusted payload. `elements` is the number of elements
// that the receiver knows. After OK the functions below cannot read out of bounds.
// InvalidArgument: the payload is malformed, or the format is unknown.
// DataLoss: the length disagrees.
[[nodiscard]] absl::Status ValidatePayload(PayloadFormat format, std::span<const std::byte> payload,
                                           size_t elements);

// Sets dst[i] += decode(payload)[first + i]. kAbsent adds nothing. REQUIRES:
// - ValidatePayload was OK for `elements`
// - `first` is a multiple of kBlockElements, and first + dst.size() <= elements
// - dst.size() is a multiple of kBlockElements, or dst reaches to `elements`
void DecodeAdd(PayloadFormat format, std::span<const std::byte> payload, size_t elements,
               size_t first, std::span<float> dst);

// Sets dst[i] = decode(payload)[first + i]. kAbsent writes zeros. REQUIRES: as DecodeAdd.
void Decode(PayloadFormat format, std::span<const std::byte> payload, size_t elements, size_t first,
            std::span<float> dst);

}  // namespace slimps

#endif  // SLIMPS_COMPRESS_FORMAT_FORMAT_H_
