// Payload formats: what bytes mean, whoever made them. A server decodes with these functions alone.
//
// Tensors are handled in blocks of kBlockElements on a fixed grid, so that results do not depend on threads and a
// block of every worker's payload fits in cache together. All functions are thread-safe and allocate nothing but an
// error's message.
#ifndef SLIMPS_COMPRESS_FORMAT_FORMAT_H_
#define SLIMPS_COMPRESS_FORMAT_FORMAT_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "absl/status/status.h"

namespace slimps {

// Values equal wire::Format's.
enum class PayloadFormat : uint8_t {
  kAbsent = 0,
  kRawF32 = 1,
  kRawF16 = 2,
  kRawBf16 = 3,
  kLevels = 4,  // levels.h
  kSparse = 5,  // sparse.h and bins.h: the first byte tells which
  kRows = 7,    // rows.h
};

inline constexpr size_t kBlockElements = 4096;

std::string_view FormatName(PayloadFormat format);

// The largest number that a raw format does not round to infinity: half a step over its largest finite one, less one
// fp32 step.
constexpr float LargestRawValue(PayloadFormat format) {
  if (format == PayloadFormat::kRawF16) return 0x1.ffdffep15f;  // under 65520
  if (format == PayloadFormat::kRawBf16) return 0x1.fefffep127f;
  return 0x1.fffffep127f;
}

// Checks every size, count and field of an untrusted payload against the element count that the receiver knows.
// InvalidArgument: malformed. DataLoss: length disagrees. After OK, the functions below cannot read out of bounds.
[[nodiscard]] absl::Status ValidatePayload(PayloadFormat format, std::span<const std::byte> payload,
                                           size_t elements);

// dst[i] += decode(payload)[first + i]. REQUIRES: ValidatePayload was OK for `elements`; first a multiple of
// kBlockElements; first + dst.size() <= elements; dst.size() a multiple of kBlockElements or reaching `elements`.
// kAbsent adds nothing.
void DecodeAdd(PayloadFormat format, std::span<const std::byte> payload, size_t elements,
               size_t first, std::span<float> dst);

// dst[i] = decode(payload)[first + i]; same requirements. kAbsent writes zeros.
void Decode(PayloadFormat format, std::span<const std::byte> payload, size_t elements, size_t first,
            std::span<float> dst);

}  // namespace slimps

#endif  // SLIMPS_COMPRESS_FORMAT_FORMAT_H_
