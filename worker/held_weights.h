// The weights that some memory holds, by partition: which version, so that a server may answer a pull with the change from
// it. Bit for bit what every other worker holds of that version.
//
//   held.UseMemory(out);                                    // forgets what it knew if that is other memory than before
//   pull.set_takes_change(held.version(i).has_value());
//   status = held.Merge(i, answer.pull, answer.payload.bytes());
//
// A change is added to the version that it belongs to and to no other; an answer that is refused leaves its partition as
// it was. So partitions of a pull that failed half-way stay usable, each at its own version.
#ifndef SLIMPS_WORKER_HELD_WEIGHTS_H_
#define SLIMPS_WORKER_HELD_WEIGHTS_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "proto/base/buffer.h"
#include "proto/slimps.pb.h"
#include "worker/key_table.h"

namespace slimps {

// Owned by the pull thread; Merge of one partition may run beside Merge of another.
class HeldWeights final {
 public:
  // `tensor` outlives it. No memory yet.
  explicit HeldWeights(const TensorPlan* tensor)
      : tensor_(tensor), versions_(tensor->partitions.size()) {}

  // Weights are kept in `memory` from now on, which the caller owns. REQUIRES: as long as the tensor.
  void UseMemory(std::span<float> memory);
  // In memory of its own. Throws std::bad_alloc.
  void UseOwnMemory();

  // nullopt: the partition holds nothing known.
  std::optional<uint64_t> version(size_t partition) const { return versions_[partition]; }
  std::span<const float> values() const { return memory_; }

  // Checks an answer and writes or adds it. InvalidArgument, DataLoss: malformed. FailedPrecondition: a change from a
  // version that is not held. REQUIRES: there is memory.
  [[nodiscard]] absl::Status Merge(size_t partition, const wire::PullReplyItem& answer,
                                   std::span<const std::byte> payload);

 private:
  const TensorPlan* const tensor_;
  AlignedBuffer own_;
  std::span<float> memory_;
  std::vector<std::optional<uint64_t>> versions_;  // by partition
};

}  // namespace slimps

#endif  // SLIMPS_WORKER_HELD_WEIGHTS_H_
