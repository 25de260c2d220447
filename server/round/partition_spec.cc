// SPDX-License-Identifier: Apache-2.0
#include "server/round/partition_spec.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "proto/limits.h"

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

saved::Spec SaveSpec(const PartitionSpec& spec) {
  saved::Spec fields;
  wire::InitItem& item = *fields.mutable_item();
  item.mutable_id()->set_key(spec.key);
  item.mutable_id()->set_partition(spec.index);
  wire::KeyInfo& info = *item.mutable_info();
  info.set_key(spec.key);
  info.set_name(spec.name);
  info.mutable_shape()->Add(spec.shape.begin(), spec.shape.end());
  info.set_dtype(spec.dtype);
  info.set_layer(static_cast<wire::LayerKind>(spec.layer));
  item.set_offset(spec.offset);
  item.set_elements(spec.elements);
  item.set_partitions(spec.partitions);
  item.set_combine(static_cast<wire::Combine>(spec.combine));
  item.set_auxiliary(spec.auxiliary);
  fields.set_mode(spec.mode);
  fields.set_staleness(spec.staleness);
  fields.set_num_workers(spec.num_workers);
  fields.set_row_elements(spec.row_elements);
  fields.set_hashed(spec.hashing == PayloadHashing::kXxh3);
  return fields;
}

absl::StatusOr<PartitionSpec> RestoreSpec(const saved::Spec& fields,
                                          std::shared_ptr<WaitingBytes> waiting) {
  const wire::InitItem& item = fields.item();
  const wire::KeyInfo& info = item.info();
  if (!wire::DType_IsValid(info.dtype()) || !wire::Combine_IsValid(item.combine()) ||
      !wire::StoreMode_IsValid(fields.mode()) || !wire::LayerKind_IsValid(info.layer())) {
    return BadImage(absl::StrCat(info.name(), ": unknown type, combination, layer or mode"));
  }
  if (fields.num_workers() == 0 || fields.row_elements() == 0 ||
      item.elements() > kDefaultLimits.max_elements) {
    return BadImage(absl::StrCat(info.name(), ": ", fields.num_workers(), " workers, ",
                                 item.elements(), " elements in rows of ", fields.row_elements()));
  }
  return PartitionSpec{
      .key = item.id().key(),
      .index = item.id().partition(),
      .name = info.name(),
      .shape = {info.shape().begin(), info.shape().end()},
      .partitions = item.partitions(),
      .offset = item.offset(),
      .elements = static_cast<size_t>(item.elements()),
      .row_elements = static_cast<size_t>(fields.row_elements()),
      .dtype = info.dtype(),
      .layer = static_cast<LayerKind>(info.layer()),
      .mode = fields.mode(),
      .staleness = fields.staleness(),
      .combine = static_cast<Combine>(item.combine()),
      .auxiliary = item.auxiliary(),
      .num_workers = fields.num_workers(),
      .rounds_ahead = kReplayedRoundsAhead,  // the server has snapshots
      .waiting = waiting != nullptr ? std::move(waiting) : std::make_shared<WaitingBytes>(),
      .hashing = fields.hashed() ? PayloadHashing::kXxh3 : PayloadHashing::kOff,
  };
}

std::string DescribeSpec(const saved::Spec& fields) {
  const wire::InitItem& item = fields.item();
  const wire::KeyInfo& info = item.info();
  return absl::StrCat(
      "shape [", absl::StrJoin(info.shape(), ", "), "] in ", item.partitions(),
      " partitions, of which this has ", item.elements(), " elements from ", item.offset(),
      " on, type ", wire::DType_Name(info.dtype()), ", layer ", wire::LayerKind_Name(info.layer()),
      ", combination ", wire::Combine_Name(item.combine()), item.auxiliary() ? " (auxiliary)" : "",
      ", mode ", wire::StoreMode_Name(fields.mode()), ", staleness ", fields.staleness(), ", ",
      fields.num_workers(), " workers, checksums ", fields.hashed() ? "on" : "off");
}

std::string DescribePartition(const std::string& key_name, uint32_t index) {
  return absl::StrCat("key ", key_name, " partition ", index);
}

}  // namespace slimps
