// SPDX-License-Identifier: Apache-2.0
// PushEncoder: what becomes of a work that PushQueue hands out.
//
//   work --Choose--> codec --Make--> item
//
// Choose runs for one work at a time, in the order in which works begin: reports and decisions
// belong between rounds, and a policy that adapts sees the gradients in that order. Make runs for
// several partitions at a time.
#ifndef SLIMPS_WORKER_PUSH_PUSH_ENCODER_H_
#define SLIMPS_WORKER_PUSH_PUSH_ENCODER_H_

#include <functional>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "compress/codec/codec.h"
#include "compress/codec/state/state_store.h"
#include "compress/policy/controllers/report.h"
#include "worker/device/device.h"
#include "worker/push/level_probe.h"
#include "worker/push/plan_in_use.h"
#include "worker/push/push_item_maker.h"
#include "worker/push/push_job.h"
#include "worker/push/push_queue.h"

namespace slimps {

struct PushEncoderOptions {
  PushItemMakerOptions items;
  PlanInUseOptions plan;
  std::function<void()> await_measured_pulls;  // PushPipelineOptions has it
  std::function<LinkReport()> take_link;       // returns what is known of the link
};

// Thread-safe, but for what one thread at a time may call.
class PushEncoder final {
 public:
  PushEncoder(CompressionPlan* plan, PushEncoderOptions options);

  PlanInUse& plan() { return plan_; }
  const PlanInUse& plan() const { return plan_; }

  // Returns what codecs keep of each partition. REQUIRES: as StateStore says.
  StateStore& states() { return items_.states(); }

  // ---- One thread at a time may call these.

  // Sends the reports that are due, and returns the work's codec. Waits for the decision that the
  // codec needs.
  // InvalidArgument: a gradient on loan is not finite (names the element).
  // DeadlineExceeded: the decision did not come within the timeout.
  [[nodiscard]] absl::StatusOr<const Codec*> Choose(EncodeWork* work);

  // Sends the report of a policy that adapts, if one is due, and shows it the gradients.
  [[nodiscard]] absl::Status Look(const PushJob& job);

  LevelProbe& probe() { return probe_; }

  // ---- Any thread.

  // Makes the item of the work's buffer number `index`, which the work then no longer holds. If
  // there is none, the item carries the job's ready payload or nothing.
  // InvalidArgument: as Choose, or as PayloadMaker::Make says.
  [[nodiscard]] absl::StatusOr<PreparedPush> Make(EncodeWork* work, size_t index,
                                                  const Codec& codec);

 private:
  // Checks gradients on loan, and sets the work's checked_bound.
  absl::Status CheckLent(EncodeWork* work) const;
  absl::Status SendPolicyReport(const PushJob& job);
  absl::Status Show(const PushJob& job, size_t partition,
                    const std::shared_ptr<HostBuffer>& grad_buf, float gradient_bound);

  const PushEncoderOptions options_;
  PlanInUse plan_;
  PushItemMaker items_;
  LevelProbe probe_;
};

}  // namespace slimps

#endif  // SLIMPS_WORKER_PUSH_PUSH_ENCODER_H_
