// SPDX-License-Identifier: Apache-2.0
// The image of a partition in memory: its small fields (image.proto), and parts for what is large.
// Each class that an image covers saves its own members, and restores them into a new object.
//
//   image.fields.set_master_part(image.AddCopy(master_.bytes()));              // saving
//   SLIMPS_RETURN_IF_ERROR(image.CopyTo(fields.master_part(), master_.bytes()));  // restoring
#ifndef SLIMPS_SERVER_SAVED_IMAGE_H_
#define SLIMPS_SERVER_SAVED_IMAGE_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "compress/format/format.h"
#include "proto/base/buffer.h"
#include "server/saved/image.pb.h"

namespace slimps {

// What an image is for. A snapshot has what late pulls may still ask for: the version before, and
// the change from it. A job that begins from a checkpoint has no such pulls.
enum class ImageUse { kSnapshot, kCheckpoint };

// Thread-compatible. Its parts never change, so another thread may read them while the partition
// goes on.
struct PartitionImage {
  saved::Partition fields;
  std::vector<Payload> parts;

  // Adds a part and returns its number. Returns 0 for one without bytes, which is not kept.
  uint32_t Add(Payload part);

  // Adds a copy of `bytes`, which their owner may change afterwards.
  uint32_t AddCopy(std::span<const std::byte> bytes);

  // Returns part `number`; for 0, one without bytes.
  // DataLoss: there is no such part.
  [[nodiscard]] absl::StatusOr<Payload> Part(uint32_t number) const;

  // Returns a part that is a payload of so many elements.
  // DataLoss: there is no such part, or it is malformed.
  [[nodiscard]] absl::StatusOr<Payload> PayloadOf(PayloadFormat format, uint32_t number,
                                                  size_t elements) const;

  // Copies a part.
  // DataLoss: there is no such part, or it has another length than `out`.
  [[nodiscard]] absl::Status CopyTo(uint32_t number, std::span<std::byte> out) const;

  size_t PartBytes() const;
};

// DataLoss: there is no such format.
[[nodiscard]] absl::StatusOr<PayloadFormat> RestoreFormat(wire::Format format);

// Returns the error for an image that nothing can be restored from.
absl::Status BadImage(absl::string_view what);

}  // namespace slimps

#endif  // SLIMPS_SERVER_SAVED_IMAGE_H_
