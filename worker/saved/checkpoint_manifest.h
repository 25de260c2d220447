// SPDX-License-Identifier: Apache-2.0
// The manifest of a checkpoint, manifest.json: what the folder holds, and the length and CRC-32 of
// every file. It is written last, so a folder without it is no checkpoint.
//
//   {
//    "format": "slimps checkpoint 1", "id": "...", "rounds": 120, "kvstore": "dist_sync", ...
//    "tensors": [{"name": "conv1.weight", "shape": [20, 1, 5, 5], "dtype": "FLOAT32"}, ...],
//    "files": [{"name": "server-0.images", "bytes": 4711, "crc32": "89abcdef"}, ...],
//    "crc32_of_the_above": "01234567"
//   }
//
// The last line has the CRC-32 of all bytes before its comma. Pure; thread-safe.
#ifndef SLIMPS_WORKER_SAVED_CHECKPOINT_MANIFEST_H_
#define SLIMPS_WORKER_SAVED_CHECKPOINT_MANIFEST_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/slimps.pb.h"
#include "worker/tensor/key_table.h"

namespace slimps {

struct CheckpointManifest {
  static constexpr char kFile[] = "manifest.json";

  uint64_t id = 0;
  uint64_t rounds = 0;  // of the tensor that was pushed most often
  std::string kvstore;
  uint32_t workers = 0;
  uint32_t servers = 0;
  std::string compression;  // of worker 0, in words, for people
  std::string optimizer;    // in words, for people
  std::vector<wire::KeyInfo> tensors;
  std::vector<wire::CheckpointFile> files;

  // InvalidArgument: the checkpoint is one of other tensors, or of another store (says what).
  [[nodiscard]] absl::Status CheckFits(const std::string& kvstore, uint32_t workers,
                                       const std::vector<const TensorPlan*>& keys) const;
};

// Returns a tensor's name as people gave it: "conv1.weight" for "s:conv1.weight", "5" for "i:5".
std::string PlainName(const std::string& typed_name);

std::string BuildManifest(const CheckpointManifest& manifest);

// DataLoss: the text is damaged. InvalidArgument: it is no manifest of this version.
[[nodiscard]] absl::StatusOr<CheckpointManifest> ParseManifest(std::string_view text);

}  // namespace slimps

#endif  // SLIMPS_WORKER_SAVED_CHECKPOINT_MANIFEST_H_
