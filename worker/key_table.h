// The keys of a store and where their partitions live: filled at Init from the scheduler's
// placement, read by every later stage.
#ifndef SLIMPS_WORKER_KEY_TABLE_H_
#define SLIMPS_WORKER_KEY_TABLE_H_

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <unordered_map>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/base/key.h"
#include "proto/base/mutex.h"
#include "proto/slimps.pb.h"
#include "worker/hyper.h"

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

  uint64_t bytes() const {
    return elements * sizeof(float);
  }  // what the threshold is compared with
};

// The plan of `key` from a placement that names every element exactly once, in order; else
// InvalidArgument, naming the key and the partition that is wrong.
[[nodiscard]] absl::StatusOr<TensorPlan> MakeTensorPlan(const Key& key, const wire::KeyInfo& info,
                                                        const wire::KeyPlace& place,
                                                        uint32_t num_servers);

// What a push is told that has just been counted.
struct CountedPush {
  uint64_t round = 0;                // of the key, from 1
  std::optional<wire::Hyper> hyper;  // set for the key when it was counted
};

// Thread-safe.
class KeyTable final {
 public:
  // AlreadyExists: the key is there. InvalidArgument: an int key among text keys, or the other way
  // round.
  [[nodiscard]] absl::Status CheckNew(const Key& key) const;
  // All of them or, where memory runs out and std::bad_alloc is thrown, none. REQUIRES: CheckNew was OK of each.
  void Add(std::vector<TensorPlan> plans);
  // NotFound names the key. The plan lives as long as the table.
  [[nodiscard]] absl::StatusOr<const TensorPlan*> Find(const Key& key) const;
  // Counts one more round that this worker pushes of the key. REQUIRES: Find was OK.
  CountedPush CountPush(const Key& key);
  // For pushes counted from now on; nullopt: the optimizer's own numbers. NotFound, InvalidArgument (negative or not
  // finite): names the key.
  [[nodiscard]] absl::Status SetHyper(const Key& key, const std::optional<Hyper>& hyper);
  uint64_t PushedRounds(const Key& key) const;
  uint64_t MaxPushedRounds() const;
  bool empty() const;
  // Those that have elements, in the order of their names; they live as long as the table.
  std::vector<const TensorPlan*> WithElements() const;

 private:
  struct Entry {
    TensorPlan plan;
    uint64_t pushed_rounds = 0;
    std::optional<wire::Hyper> hyper = std::nullopt;
  };

  mutable Mutex mutex_;
  std::unordered_map<KeyId, std::unique_ptr<Entry>> entries_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace slimps

#endif  // SLIMPS_WORKER_KEY_TABLE_H_
