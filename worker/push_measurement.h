// PushMeasurement: sends one tensor's partitions alone and takes the time, for the threshold table.
//
//   PushMeasurement measurement(dispatch, timeout);
//   SLIMPS_ASSIGN_OR_RETURN(const Passage passage, measurement.Send(tensor, priority, items));
//   plan->RecordPush(tensor, round, passage.communication, encode + passage.decode);
//
// Communication is what passes from the first byte handed over to the last acknowledgement, less the decoding that this
// acknowledgement waited for. A small tensor is sent several times, and the quickest passage counts: its time is start-up
// in the main, and what lies above the quickest is the two machines' own scheduling, which would drown the few microseconds
// that compressing it costs. How often goes by the tensor's size, whatever its payload: the quickest of many is shorter than
// the quickest of few, so raw and compressed passages compare only where they are as many. A server acknowledges repeats and
// counts them once. See docs/decisions/measuring-thresholds.md.
#ifndef SLIMPS_WORKER_PUSH_MEASUREMENT_H_
#define SLIMPS_WORKER_PUSH_MEASUREMENT_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "worker/courier.h"
#include "worker/key_table.h"

namespace slimps {

// What one tensor's partitions took together.
struct Passage {
  absl::Duration communication;  // zero: not known, for something had to be sent again
  absl::Duration decode;
};

// Thread-safe.
class PushMeasurement final {
 public:
  // A tensor is sent as often as its fp32 bytes fit into kRepeatedBytes, once at least and kMaxRepeats times at most.
  static constexpr uint64_t kRepeatedBytes = 64 << 10;
  static constexpr int kMaxRepeats = 16;
  static int Repeats(uint64_t tensor_bytes);

  // As Courier::Dispatch. Each item is answered within `timeout`, if only with an error.
  using Dispatch =
      std::function<void(uint32_t server, std::vector<OutgoingItem> items, int64_t priority)>;

  PushMeasurement(Dispatch dispatch, absl::Duration timeout, const Clock* clock = MachineClock())
      : dispatch_(std::move(dispatch)), timeout_(timeout), clock_(clock) {}

  // Sends the tensor's pushes, one of each partition in their order, marked `profile` and without a
  // `done`, and waits for all answers. Returns the first error among them; DeadlineExceeded if some
  // answer never came.
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

#endif  // SLIMPS_WORKER_PUSH_MEASUREMENT_H_
