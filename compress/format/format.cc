// SPDX-License-Identifier: Apache-2.0
#include "compress/format/format.h"

#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "compress/format/bins.h"
#include "compress/format/decode.h"
#include "compress/format/lanes.h"
#include "compress/format/levels.h"
#include "compress/format/low_rank.h"
#include "compress/format/rotated.h"
#include "compress/format/rows.h"
#include "compress/format/sparse.h"

namespace slimps {
namespace {

absl::Status ValidateRaw(PayloadFormat format, std::span<const std::byte> payload, size_t elements,
                         size_t element_bytes) {
  // Divides, since a declared count times its size could wrap.
  if (payload.size() % element_bytes == 0 && payload.size() / element_bytes == elements) {
    return absl::OkStatus();
  }
  return absl::DataLossError(absl::StrCat(std::string(FormatName(format)), " payload of ", elements,
                                          " elements: expected ", element_bytes,
                                          " bytes each, got ", payload.size(), " bytes in all"));
}

// Both sparse layouts share one format; the first byte tells them apart.
bool IsBins(std::span<const std::byte> payload) {
  return !payload.empty() && payload[0] == std::byte{kBinsMagic};
}

}  // namespace

std::string_view FormatName(PayloadFormat format) {
  switch (format) {
    case PayloadFormat::kAbsent:
      return "absent";
    case PayloadFormat::kRawF32:
      return "raw fp32";
    case PayloadFormat::kRawF16:
      return "raw fp16";
    case PayloadFormat::kRawBf16:
      return "raw bf16";
    case PayloadFormat::kLevels:
      return "levels";
    case PayloadFormat::kSparse:
      return "sparse";
    case PayloadFormat::kLowRank:
      return "low rank";
    case PayloadFormat::kRows:
      return "rows";
    case PayloadFormat::kRotated:
      return "rotated";
  }
  return "unknown format";
}

absl::Status ValidatePayload(PayloadFormat format, std::span<const std::byte> payload,
                             size_t elements) {
  switch (format) {
    case PayloadFormat::kAbsent:
      if (payload.empty()) return absl::OkStatus();
      return absl::DataLossError(
          absl::StrCat("absent payload: expected 0 bytes, got ", payload.size()));
    case PayloadFormat::kRawF32:
      return ValidateRaw(format, payload, elements, 4);
    case PayloadFormat::kRawF16:
    case PayloadFormat::kRawBf16:
      return ValidateRaw(format, payload, elements, 2);
    case PayloadFormat::kLevels:
      return ValidateLevels(payload, elements);
    case PayloadFormat::kSparse:
      return IsBins(payload) ? ValidateBins(payload, elements) : ValidateSparse(payload, elements);
    case PayloadFormat::kLowRank:
      return ValidateLowRank(payload, elements);
    case PayloadFormat::kRows:
      return ValidateRows(payload, elements);
    case PayloadFormat::kRotated:
      return HasLanes(payload) ? ValidateLanes(payload, elements)
                               : ValidateRotated(payload, elements);
  }
  return absl::InvalidArgumentError(
      absl::StrCat("payload format: expected absent (0), raw fp32 (1), raw fp16 (2), raw bf16 (3), "
                   "levels (4), sparse (5), low rank (6), rows (7) or rotated (8), got ",
                   static_cast<int>(format)));
}

void DecodeAddWith(const Kernels& kernels, PayloadFormat format, std::span<const std::byte> payload,
                   size_t elements, size_t first, std::span<float> dst) {
  switch (format) {
    case PayloadFormat::kAbsent:
      return;
    case PayloadFormat::kRawF32:
      return kernels.raw.add_f32(payload.data() + first * 4, dst.size(), dst.data());
    case PayloadFormat::kRawF16:
      return kernels.raw.add_f16(payload.data() + first * 2, dst.size(), dst.data());
    case PayloadFormat::kRawBf16:
      return kernels.raw.add_bf16(payload.data() + first * 2, dst.size(), dst.data());
    case PayloadFormat::kLevels:
      return DecodeAddLevels(kernels, payload, first, dst);
    case PayloadFormat::kSparse:
      return IsBins(payload) ? DecodeAddBins(kernels, payload, elements, first, dst)
                             : DecodeAddSparse(kernels, payload, elements, first, dst);
    case PayloadFormat::kLowRank:
      return DecodeAddLowRank(kernels, payload, first, dst);
    case PayloadFormat::kRows:
      return DecodeAddRows(kernels, payload, first, dst);
    case PayloadFormat::kRotated:
      return HasLanes(payload) ? DecodeAddLanes(kernels, payload, first, dst)
                               : DecodeAddRotated(kernels, payload, first, dst);
  }
}

void DecodeWith(const Kernels& kernels, PayloadFormat format, std::span<const std::byte> payload,
                size_t elements, size_t first, std::span<float> dst) {
  if (dst.empty()) return;  // memcpy must not get null pointers
  switch (format) {
    case PayloadFormat::kAbsent:
      std::fill(dst.begin(), dst.end(), 0.0f);
      return;
    case PayloadFormat::kRawF32:
      std::memcpy(dst.data(), payload.data() + first * 4, dst.size_bytes());
      return;
    case PayloadFormat::kRawF16:
      return kernels.raw.decode_f16(payload.data() + first * 2, dst.size(), dst.data());
    case PayloadFormat::kRawBf16:
      return kernels.raw.decode_bf16(payload.data() + first * 2, dst.size(), dst.data());
    case PayloadFormat::kLevels:
      return DecodeLevels(kernels, payload, first, dst);
    case PayloadFormat::kSparse:
      return IsBins(payload) ? DecodeBins(kernels, payload, elements, first, dst)
                             : DecodeSparse(kernels, payload, elements, first, dst);
    case PayloadFormat::kLowRank:
      return DecodeLowRank(kernels, payload, first, dst);
    case PayloadFormat::kRows:
      return DecodeRows(payload, first, dst);
    case PayloadFormat::kRotated:
      return HasLanes(payload) ? DecodeLanes(kernels, payload, first, dst)
                               : DecodeRotated(kernels, payload, first, dst);
  }
}

void DecodeAdd(PayloadFormat format, std::span<const std::byte> payload, size_t elements,
               size_t first, std::span<float> dst) {
  DecodeAddWith(BestKernels(), format, payload, elements, first, dst);
}

void Decode(PayloadFormat format, std::span<const std::byte> payload, size_t elements, size_t first,
            std::span<float> dst) {
  DecodeWith(BestKernels(), format, payload, elements, first, dst);
}

}  // namespace slimps
