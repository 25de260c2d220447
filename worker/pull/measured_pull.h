// SPDX-License-Identifier: Apache-2.0
// MeasuredPull: sums up the times of one tensor's measured pull. It decodes the answers into
// scratch memory, since only the time counts.
//
//   MeasuredPull measured(tensor, version, clock);
//   measured.Add(partition, answer, arrived, change_codec);   // for each partition
//   if (auto result = measured.result()) on_measured(*result);
//
// Owned by the pull thread.
#ifndef SLIMPS_WORKER_PULL_MEASURED_PULL_H_
#define SLIMPS_WORKER_PULL_MEASURED_PULL_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

#include "absl/time/time.h"
#include "proto/base/clock.h"
#include "worker/courier/outgoing_item.h"
#include "worker/tensor/key_table.h"

namespace slimps {

// The times of one tensor's measured pull, of a version that was there already.
struct PullMeasurement {
  const TensorPlan* tensor = nullptr;
  uint64_t version = 0;
  absl::Duration communication;  // first request handed over, to last answer
  // The servers' encoding plus this worker's decoding; 0 if nothing was encoded.
  absl::Duration coding;
};

class MeasuredPull final {
 public:
  MeasuredPull(const TensorPlan* tensor, uint64_t version, const Clock* clock)
      : clock_(clock), sum_{.tensor = tensor, .version = version} {}

  // Adds one partition's answer. `change_codec` is the codec that the version travels with by
  // agreement; "" means as it is.
  void Add(size_t partition, const Answer& answer, SteadyTime arrived,
           std::string_view change_codec);

  // Returns the times of all answers. nullopt: some answer was an error, malformed, sent again, of
  // another version, or of another form than the agreed one.
  std::optional<PullMeasurement> result() const;

 private:
  bool IsSample(size_t partition, const Answer& answer, std::string_view change_codec) const;
  // Decodes a change into scratch memory and returns how long that took.
  absl::Duration TimeToDecode(size_t partition, const Answer& answer) const;

  const Clock* const clock_;
  PullMeasurement sum_;
  bool all_are_samples_ = true;
  SteadyTime first_byte_ = SteadyTime::InfiniteFuture();
  SteadyTime last_answer_ = SteadyTime::InfinitePast();
};

}  // namespace slimps

#endif  // SLIMPS_WORKER_PULL_MEASURED_PULL_H_
