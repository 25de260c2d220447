// SPDX-License-Identifier: Apache-2.0
// HostCopies: a step's gradients on their way from GPUs to the host, for who reads them there. No
// caller waits for a stream or a copy: what has come is taken by a thread of its own.
//
//   HostCopies copies(parameters, [&](size_t index, auto copy) { ... push **copy ... }, clock);
//   copies.BeginStep();
//   copies.Start(index, device, gradient, place);
//   status = copies.AwaitTaken(deadline);
//
// Owned by the training thread. One thread at a time calls Start.
#ifndef SLIMPS_WORKER_EXCHANGE_HOST_COPIES_H_
#define SLIMPS_WORKER_EXCHANGE_HOST_COPIES_H_

#include <cstddef>
#include <functional>
#include <list>
#include <memory>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/base/clock.h"
#include "proto/base/thread.h"
#include "worker/device/device.h"

namespace slimps {

class HostCopies final {
 public:
  // A gradient on the host. Pinned memory is scarce: let it go once it is read.
  using Copy = std::shared_ptr<HostBuffer>;

  // `take` gets each copy, one after the other, or the error of making it. It may wait.
  HostCopies(size_t parameters, std::function<void(size_t index, absl::StatusOr<Copy> copy)> take,
             const Clock* clock);
  // Waits until no copy is under way.
  ~HostCopies();
  HostCopies(const HostCopies&) = delete;
  HostCopies& operator=(const HostCopies&) = delete;

  void BeginStep();

  // Starts a copy after the work that its stream has been given. Never waits for either.
  // REQUIRES: `gradient`, on `device`, stays as it is until IsRead.
  // ResourceExhausted: no pinned memory. Nothing is taken.
  [[nodiscard]] absl::Status Start(size_t index, Device* device, std::span<const float> gradient,
                                   const Place& place);

  // True if a copy of this step's gradient has been made, or it was noted to be read.
  bool IsRead(size_t index) const;
  void NoteRead(size_t index);

  // Waits until all copies of this step have been taken.
  // DeadlineExceeded: some have not.
  // ResourceExhausted: memory ran out while one was taken.
  [[nodiscard]] absl::Status AwaitTaken(SteadyTime deadline);

 private:
  struct Shared;  // with the callbacks of copies

  void Run();

  const std::function<void(size_t index, absl::StatusOr<Copy> copy)> take_;
  const Clock* const clock_;
  const std::shared_ptr<Shared> shared_;
  Thread thread_;  // from the first Start on
};

}  // namespace slimps

#endif  // SLIMPS_WORKER_EXCHANGE_HOST_COPIES_H_
