// SPDX-License-Identifier: Apache-2.0
#include "compress/format/rotated.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "compress/format/bytes.h"
#include "compress/format/levels.h"
#include "proto/base/status_macros.h"

namespace slimps {
namespace {

std::span<const std::byte> LevelsOf(std::span<const std::byte> payload) {
  return payload.subspan(kRotatedHeaderBytes);
}

absl::Status CheckHeader(std::span<const std::byte> payload, size_t elements) {
  const auto check = [](const char* field, size_t expected, size_t got) {
    if (expected == got) return absl::OkStatus();
    return Malformed("rotated", field, absl::StrCat(expected), absl::StrCat(got));
  };
  SLIMPS_RETURN_IF_ERROR(check("magic byte", kRotatedMagic, Load<uint8_t>(payload, 0)));
  for (const size_t zero : {1, 2, 3}) {
    SLIMPS_RETURN_IF_ERROR(check("bytes 1 to 3", 0, Load<uint8_t>(payload, zero)));
  }
  return check("elements", elements, Load<uint32_t>(payload, 4));
}

// Calls back(rotated, n, stream, block, place in dst) for each block that dst covers.
template <typename Back>
void ForBlocks(const Kernels& kernels, std::span<const std::byte> payload, size_t first,
               std::span<float> dst, Back back) {
  const PhiloxStream rotation = RotationOf(payload);
  const RandomStream stream = {rotation.key0, rotation.key1, rotation.round, rotation.worker,
                               rotation.partition};
  alignas(64) float rotated[kBlockElements];
  for (size_t done = 0; done < dst.size(); done += kBlockElements) {
    const size_t n = std::min(kBlockElements, dst.size() - done);
    DecodeLevels(kernels, LevelsOf(payload), first + done,
                 std::span<float>(rotated).first(RotatedElements(n)));
    back(rotated, n, stream, static_cast<uint32_t>((first + done) / kBlockElements),
         dst.data() + done);
  }
}

}  // namespace

void BuildRotatedHeader(size_t elements, const PhiloxStream& stream, std::span<std::byte> payload) {
  Store(uint32_t{kRotatedMagic}, payload, 0);
  Store(static_cast<uint32_t>(elements), payload, 4);
  Store(stream.key0, payload, 8);
  Store(stream.key1, payload, 12);
  Store(stream.round, payload, 16);
  Store(stream.worker, payload, 20);
  Store(stream.partition, payload, 24);
}

PhiloxStream RotationOf(std::span<const std::byte> payload) {
  return {.key0 = Load<uint32_t>(payload, 8),
          .key1 = Load<uint32_t>(payload, 12),
          .round = Load<uint32_t>(payload, 16),
          .worker = Load<uint32_t>(payload, 20),
          .partition = Load<uint32_t>(payload, 24)};
}

absl::Status ValidateRotated(std::span<const std::byte> payload, size_t elements) {
  if (payload.size() < kRotatedHeaderBytes) {
    return absl::DataLossError(absl::StrCat("rotated payload: expected at least ",
                                            kRotatedHeaderBytes, " bytes, got ", payload.size()));
  }
  SLIMPS_RETURN_IF_ERROR(CheckHeader(payload, elements));
  SLIMPS_RETURN_IF_ERROR(ValidateLevels(LevelsOf(payload), RotatedLength(elements)));
  // A sum over a block, and one rounding up in each stage.
  const float largest = LargestLevel(LevelsOf(payload));
  if (!std::isfinite(largest * (kBlockElements * 1.00001f))) {
    return Malformed("rotated", "largest level times 4096", "a finite number",
                     absl::StrCat(largest, " * 4096"));
  }
  return absl::OkStatus();
}

void DecodeRotated(const Kernels& kernels, std::span<const std::byte> payload, size_t first,
                   std::span<float> dst) {
  ForBlocks(kernels, payload, first, dst, kernels.rotate.restore);
}

void DecodeAddRotated(const Kernels& kernels, std::span<const std::byte> payload, size_t first,
                      std::span<float> dst) {
  ForBlocks(kernels, payload, first, dst, kernels.rotate.add);
}

}  // namespace slimps
