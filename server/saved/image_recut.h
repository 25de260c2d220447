// SPDX-License-Identifier: Apache-2.0
// Makes the image of a partition from images of the same key that was cut otherwise, as codecs with
// phases cut it by the number of servers.
//
//   ImageRecut recut(spec);                       // of the partition that is wanted
//   SLIMPS_RETURN_IF_ERROR(recut.Add(image));     // of each image of the key
//   if (recut.whole()) Use(recut.Take());
//
// Weights and the optimizer's state are copied element by element. Everything else is common to a
// key's partitions, once all pushes of their rounds were counted.
#ifndef SLIMPS_SERVER_SAVED_IMAGE_RECUT_H_
#define SLIMPS_SERVER_SAVED_IMAGE_RECUT_H_

#include <cstdint>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "proto/base/buffer.h"
#include "server/saved/image.h"

namespace slimps {

// Thread-compatible.
class ImageRecut final {
 public:
  // REQUIRES: the elements of `spec` are within their limit.
  explicit ImageRecut(saved::Spec spec) : spec_(std::move(spec)) {}

  // Copies what `image` has of the partition. Throws std::bad_alloc.
  // FailedPrecondition: pushes of rounds that are not complete wait in it, or its version is not
  // that of the others, or it is no plain weights.
  // DataLoss: it has other parts than it says.
  [[nodiscard]] absl::Status Add(const PartitionImage& image);

  // True if every element has come.
  bool whole() const { return copied_ == spec_.item().elements(); }

  // Returns the image. REQUIRES: whole().
  PartitionImage Take();

 private:
  // Elements [from, to) of the key that `image` and the partition share.
  struct Shared {
    uint64_t from = 0;
    uint64_t to = 0;
  };

  absl::Status Check(const PartitionImage& image) const;
  void Begin(const PartitionImage& image);

  const saved::Spec spec_;
  saved::Partition fields_;  // of the first image; its part numbers are those of buffers_
  std::vector<AlignedBuffer> buffers_;  // empty before the first image
  uint64_t copied_ = 0;
};

}  // namespace slimps

#endif  // SLIMPS_SERVER_SAVED_IMAGE_RECUT_H_
