// GradientStaging: the memory of grad_buf, where a gradient lies from its copy until it is encoded or, where it travels raw,
// until its server has it. Bounded: a push waits for room before it takes any, and gets it in the order of asking.
//
//   staging.AddKeys(bytes_of_the_new_keys);                  // by default one round of all keys fits
//   SLIMPS_ASSIGN_OR_RETURN(auto grad_bufs, staging.Acquire(*tensor, timeout));   // one buffer a partition
//   ... copy the gradient there; each buffer's room is free again once its last holder has dropped it ...
//
//         Acquire: whole tensor              partition 0 encoded       partition 1 acknowledged
//   free -----------------------> in use --------------------> free .. --------------------> free
//
// A buffer per partition, so that a large tensor's next gradient finds room while its last one is still leaving, and all
// large tensors share blocks of one size. Room is asked for as a whole: nobody waits with half of a tensor in hand.
// Thread-safe. Buffers may outlive the staging and its device, as their pool does.
#ifndef SLIMPS_WORKER_STAGING_H_
#define SLIMPS_WORKER_STAGING_H_

#include <cstddef>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "proto/base/mutex.h"
#include "worker/device/device.h"
#include "worker/key_table.h"

namespace slimps {

using GradientBuffers = std::vector<std::shared_ptr<HostBuffer>>;  // by partition

class GradientStaging final {
 public:
  // However small a job's keys, so much may wait: rounds then follow each other without a gap.
  static constexpr size_t kLeastBytes = size_t{64} << 20;

  // `device` outlives this. `most_bytes` 0: as many as one round of all keys, but kLeastBytes.
  GradientStaging(Device* device, size_t most_bytes);

  void AddKeys(size_t bytes);
  // Waits until the tensor fits beside what is in use, or nothing is. DeadlineExceeded: it did not within `timeout`
  // (names the key and both figures). What Fail was told. ResourceExhausted: no memory.
  [[nodiscard]] absl::StatusOr<GradientBuffers> Acquire(const TensorPlan& tensor,
                                                        absl::Duration timeout);
  // Ends every wait, now and later.
  void Fail(const absl::Status& why);

  size_t most_bytes() const;
  size_t bytes_in_use() const;

 private:
  class Room;
  class Buffer;

  Device* const device_;
  const size_t fixed_most_bytes_;
  const std::shared_ptr<Room> room_;  // with the buffers
  Mutex keys_mutex_;                  // before the room's own
  size_t key_bytes_ ABSL_GUARDED_BY(keys_mutex_) = 0;
};

}  // namespace slimps

#endif  // SLIMPS_WORKER_STAGING_H_
