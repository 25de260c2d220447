// SPDX-License-Identifier: Apache-2.0
// The keys of a store and where their partitions live. Init fills it from the scheduler's
// placement; every later stage reads it.
#ifndef SLIMPS_WORKER_TENSOR_KEY_TABLE_H_
#define SLIMPS_WORKER_TENSOR_KEY_TABLE_H_

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "compress/kernels/hyper.h"
#include "proto/base/key.h"
#include "proto/base/mutex.h"
#include "proto/slimps.pb.h"
#include "worker/tensor/init_tensor.h"

namespace slimps {

struct PartitionPlan {
  uint32_t server = 0;  // rank
  size_t offset = 0;    // elements
  size_t elements = 0;
};

// One tensor. Constant after construction.
struct TensorPlan {
  Key key;
  wire::KeyInfo info;
  size_t elements = 0;
  std::vector<PartitionPlan> partitions;

  // The threshold is compared with this.
  uint64_t bytes() const { return elements * sizeof(float); }

  std::span<const int64_t> shape() const {
    return {info.shape().data(), static_cast<size_t>(info.shape_size())};
  }
};

// Returns the plan of `key` from a placement.
// InvalidArgument (names the key and the partition): the placement does not name every element
// exactly once, in order.
[[nodiscard]] absl::StatusOr<TensorPlan> MakeTensorPlan(const Key& key, const wire::KeyInfo& info,
                                                        const wire::KeyPlace& place,
                                                        uint32_t num_servers);

// What KeyTable counted for one push.
struct CountedPush {
  uint64_t round = 0;                // of the key, from 1
  std::optional<wire::Hyper> hyper;  // as set for the key when the push was counted
  bool clipped = false;              // likewise
};

// Thread-safe.
class KeyTable final {
 public:
  // Checks that the keys of `tensors` may be added.
  // AlreadyExists: a key is there.
  // InvalidArgument: a key is named twice, or is an int key among text keys, or the reverse.
  [[nodiscard]] absl::Status CheckNew(std::span<const InitTensor> tensors) const;

  // Adds all of them. If memory runs out, throws std::bad_alloc and adds none. REQUIRES: CheckNew
  // was OK.
  void Add(std::vector<TensorPlan> plans);

  // Says that a former process of this worker pushed so many rounds of the key, at least.
  // REQUIRES: Find was OK.
  void SkipRounds(const Key& key, uint64_t rounds);

  // Returns the plan, which lives as long as the table.
  // NotFound: names the key.
  [[nodiscard]] absl::StatusOr<const TensorPlan*> Find(const Key& key) const;

  // Counts one more round of the key that this worker pushes. REQUIRES: Find was OK.
  CountedPush CountPush(const Key& key);

  // Sets the numbers for pushes counted from now on; nullopt: the optimizer's own.
  // NotFound: names the key.
  // InvalidArgument (names the key): negative or not finite.
  [[nodiscard]] absl::Status SetHyper(const Key& key, const std::optional<Hyper>& hyper);

  // Says if pushes counted from now on are clipped (KVStore::SetClipped).
  // NotFound: names the key.
  [[nodiscard]] absl::Status SetClipped(const Key& key, bool clipped);

  // Returns the highest learning rate that SetHyper has set; nullopt: it has set none.
  std::optional<double> HighestSetRate() const;

  // Returns how many rounds this worker has pushed of a key. REQUIRES: Find was OK.
  uint64_t PushedRounds(const Key& key) const;
  uint64_t MaxPushedRounds() const;

  // Returns the sum over all keys.
  uint64_t SumOfPushedRounds() const;

  // Returns how many rounds of a key this worker has pushed, and the numbers that were set for it.
  // REQUIRES: Find was OK.
  CountedPush Progress(const Key& key) const;

  // Goes on from there. REQUIRES: Find was OK.
  void Resume(const Key& key, CountedPush progress);
  bool empty() const;

  // Returns all plans in the order of their names. They live as long as the table.
  std::vector<const TensorPlan*> InNameOrder() const;

 private:
  struct Entry {
    TensorPlan plan;
    uint64_t pushed_rounds = 0;
    std::optional<wire::Hyper> hyper = std::nullopt;
    bool clipped = false;
  };

  mutable Mutex mutex_;
  std::unordered_map<KeyId, std::unique_ptr<Entry>> entries_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace slimps

#endif  // SLIMPS_WORKER_TENSOR_KEY_TABLE_H_
