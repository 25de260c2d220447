// SPDX-License-Identifier: Apache-2.0
// The weights that some memory holds, and each partition's version, so that a server may answer a
// pull with the change from that version. Every other worker holds the same bits of a version.
//
//   held.UseMemory(out);   // other memory than before: no version is known
//   pull.set_takes_change(held.version(i).has_value());
//   status = held.Merge(i, answer.pull, answer.payload.bytes());
//
// A change is added only to the version that it starts from. A refused answer leaves its partition
// as it was. So the partitions of a pull that failed half-way stay usable, each at its own version.
#ifndef SLIMPS_WORKER_PULL_HELD_WEIGHTS_H_
#define SLIMPS_WORKER_PULL_HELD_WEIGHTS_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "proto/base/buffer.h"
#include "proto/slimps.pb.h"
#include "worker/tensor/key_table.h"
#include "worker/tensor/shared_momentum.h"

namespace slimps {

// Owned by the pull thread that has the turns (PullMerger). Merge of one partition may run beside
// Merge of another.
class HeldWeights final {
 public:
  // Holds no memory yet. REQUIRES: `tensor` outlives this.
  explicit HeldWeights(const TensorPlan* tensor)
      : tensor_(tensor), versions_(tensor->partitions.size()) {}

  // Keeps weights in the caller's `memory` from now on.
  // REQUIRES: `memory` has as many elements as the tensor.
  void UseMemory(std::span<float> memory);

  // Keeps weights in memory of its own. Throws std::bad_alloc.
  void UseOwnMemory();

  // Forgets which versions the memory holds, as if it were other memory.
  void ForgetVersions() { std::ranges::fill(versions_, std::nullopt); }

  // Returns the version of a partition that is held; nullopt if none is.
  std::optional<uint64_t> version(size_t partition) const { return versions_[partition]; }
  std::span<const float> values() const { return memory_; }

  // Checks an answer and writes it, or adds it if it is a change.
  // REQUIRES: UseMemory or UseOwnMemory was called.
  // InvalidArgument, DataLoss: malformed.
  // FailedPrecondition: a change from a version that is not held.
  // `momentum` repeats the steps of answers that carry a momentum; null: there are none.
  [[nodiscard]] absl::Status Merge(size_t partition, const wire::PullReplyItem& answer,
                                   std::span<const std::byte> payload,
                                   SharedMomentum* momentum = nullptr);

 private:
  const TensorPlan* const tensor_;
  AlignedBuffer own_;
  std::span<float> memory_;
  std::vector<std::optional<uint64_t>> versions_;  // by partition
};

}  // namespace slimps

#endif  // SLIMPS_WORKER_PULL_HELD_WEIGHTS_H_
