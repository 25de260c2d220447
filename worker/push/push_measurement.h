// SPDX-License-Identifier: Apache-2.0
// PushMeasurement: sends one tensor's partitions alone and measures the time, for the threshold
// table.
//
//   PushMeasurement measurement(dispatch, timeout);
//   SLIMPS_ASSIGN_OR_RETURN(const Passage passage, measurement.Send(tensor, priority, items));
//   plan->RecordPush(tensor, round, passage.communication, encode + passage.decode);
//
// Communication is the time from the first byte handed over to the last acknowledgement, less the
// decoding that this acknowledgement waited for.
//
// A small tensor is sent several times, and the quickest passage counts. Its time is mainly
// start-up. What exceeds the quickest passage is the two machines' scheduling, which would hide the
// few microseconds that compression costs. The number of repeats depends on the tensor's size,
// never on its payload: the quickest of many is shorter than the quickest of few, so raw and
// compressed passages compare only at equal numbers. A server acknowledges repeats and counts them
// once. See docs/decisions/measuring-thresholds.md.
#ifndef SLIMPS_WORKER_PUSH_PUSH_MEASUREMENT_H_
#define SLIMPS_WORKER_PUSH_PUSH_MEASUREMENT_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "proto/base/clock.h"
#include "worker/courier/outgoing_item.h"
#include "worker/tensor/key_table.h"

namespace slimps {

// The times of one tensor's partitions together.
struct Passage {
  absl::Duration communication;  // zero: unknown, since an item was sent again
  absl::Duration decode;
};

// Thread-safe.
class PushMeasurement final {
 public:
  // A tensor is sent as often as its fp32 bytes fit into kRepeatedBytes, at least once and at most
  // kMaxRepeats times.
  static constexpr uint64_t kRepeatedBytes = 64 << 10;
  static constexpr int kMaxRepeats = 16;
  static int Repeats(uint64_t tensor_bytes);

  // Sends items, as Courier::Dispatch does. It must answer each item within `timeout`, if only with
  // an error.
  using Dispatch =
      std::function<void(uint32_t server, std::vector<OutgoingItem> items, int64_t priority)>;

  PushMeasurement(Dispatch dispatch, absl::Duration timeout, const Clock* clock = MachineClock())
      : dispatch_(std::move(dispatch)), timeout_(timeout), clock_(clock) {}

  // Sends the tensor's pushes and waits for all answers. Returns the quickest passage; its
  // communication is zero if none is known.
  // REQUIRES: `items` holds one push of each partition, in their order, marked `profile` and
  // without a `done`.
  // DeadlineExceeded: an answer never came.
  // Otherwise the first error among the answers.
  [[nodiscard]] absl::StatusOr<Passage> Send(const TensorPlan& tensor, int64_t priority,
                                             const std::vector<OutgoingItem>& items) const;

 private:
  absl::StatusOr<Passage> SendOnce(const TensorPlan& tensor, int64_t priority,
                                   const std::vector<OutgoingItem>& items) const;

  const Dispatch dispatch_;
  const absl::Duration timeout_;
  const Clock* const clock_;
};

}  // namespace slimps

#endif  // SLIMPS_WORKER_PUSH_PUSH_MEASUREMENT_H_
