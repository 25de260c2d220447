// SPDX-License-Identifier: Apache-2.0
// GradientStaging: the memory of grad_buf. A gradient lies there from its copy until it is encoded
// or, if it travels raw, until its server has it. The memory is bounded: a push waits for room
// before it takes any. Pushes get room in the order in which they ask.
//
//   staging.AddKeys(bytes_of_the_new_keys);   // by default one round of all keys fits
//   SLIMPS_ASSIGN_OR_RETURN(auto grad_bufs, staging.Acquire(*tensor, device, timeout));
//   ... copy the gradient there; a buffer's room is free once its last holder has dropped it ...
//
//         Acquire: whole tensor              partition 0 encoded       partition 1 acknowledged
//   free -----------------------> in use --------------------> free .. --------------------> free
//
// Each partition has a buffer of its own. So a large tensor's next gradient finds room while the
// one before is still leaving, and all large tensors share blocks of one size. A push asks for a
// tensor's whole room at once, so no push waits while it holds half of a tensor.
//
// Thread-safe. Buffers may outlive the staging and its device, as their pool does.
#ifndef SLIMPS_WORKER_PUSH_STAGING_H_
#define SLIMPS_WORKER_PUSH_STAGING_H_

#include <cstddef>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "proto/base/mutex.h"
#include "worker/device/device.h"
#include "worker/device/devices.h"
#include "worker/tensor/key_table.h"

namespace slimps {

using GradientBuffers = std::vector<std::shared_ptr<HostBuffer>>;  // by partition

class GradientStaging final {
 public:
  // The smallest automatic bound. Small keys alone would give a smaller one. With this one several
  // of their rounds fit, so the next round need not wait for the last one to leave.
  static constexpr size_t kLeastBytes = size_t{64} << 20;

  // `devices` outlives this object. `max_bytes` is the bound. 0: the bytes of one round of all
  // keys, at least kLeastBytes.
  GradientStaging(Devices* devices, size_t max_bytes);

  // Counts new keys towards the automatic bound.
  void AddKeys(size_t bytes);

  // Waits until the tensor fits beside what is in use, or until nothing is in use. Returns one
  // buffer of `device` per partition.
  // DeadlineExceeded: there was no room within `timeout`; the message names the key and both sizes.
  // ResourceExhausted: no memory.
  // The error of Fail, once it was called.
  [[nodiscard]] absl::StatusOr<GradientBuffers> Acquire(const TensorPlan& tensor, Device* device,
                                                        absl::Duration timeout);

  // Ends every wait, now and later, with the first `why`.
  void Fail(const absl::Status& why);

  // Returns true if tensors of so many bytes together fit beside what is in use, and nobody waits.
  bool HasRoom(size_t bytes) const;

  size_t max_bytes() const;
  size_t bytes_in_use() const;

 private:
  class Room;
  class Buffer;

  Devices* const devices_;
  const size_t fixed_max_bytes_;
  const std::shared_ptr<Room> room_;  // shared with the buffers
  Mutex keys_mutex_;                  // taken before the room's own
  size_t key_bytes_ ABSL_GUARDED_BY(keys_mutex_) = 0;
};

}  // namespace slimps

#endif  // SLIMPS_WORKER_PUSH_STAGING_H_
