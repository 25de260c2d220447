// SPDX-License-Identifier: Apache-2.0
#include "server/round/partition_spec.h"

#include "absl/strings/str_cat.h"

namespace slimps {

absl::StatusOr<PayloadFormat> FormatFromWire(wire::Format format) {
  switch (format) {
    case wire::ABSENT:
      return PayloadFormat::kAbsent;
    case wire::RAW_F32:
      return PayloadFormat::kRawF32;
    case wire::RAW_F16:
      return PayloadFormat::kRawF16;
    case wire::RAW_BF16:
      return PayloadFormat::kRawBf16;
    case wire::LEVELS:
      return PayloadFormat::kLevels;
    case wire::SPARSE:
      return PayloadFormat::kSparse;
    case wire::LOW_RANK:
      return PayloadFormat::kLowRank;
    case wire::ROWS:
      return PayloadFormat::kRows;
    case wire::ROTATED:
      return PayloadFormat::kRotated;
    default:
      return absl::InvalidArgumentError(
          absl::StrCat("payload format ", static_cast<int>(format), " cannot be decoded here"));
  }
}

absl::Status NeedsOptimizer(wire::StoreMode mode) {
  return absl::FailedPreconditionError(
      absl::StrCat(mode == wire::DIST_SSP ? "dist_ssp" : "dist_async",
                   " needs an optimizer on the server: it has no rounds whose sum could be kept"));
}

std::string DescribePartition(const std::string& key_name, uint32_t index) {
  return absl::StrCat("key ", key_name, " partition ", index);
}

}  // namespace slimps
