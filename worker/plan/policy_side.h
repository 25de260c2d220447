// SPDX-License-Identifier: Apache-2.0
// PolicySide: a policy that adapts, as one worker follows it. It says what the policy decides
// before any report, what a worker measures for it and when it reports, and which step of the
// ladders this worker takes in a round.
//
//   SLIMPS_RETURN_IF_ERROR(policy.Start("lgreco:codec=topk"));
//   SLIMPS_ASSIGN_OR_RETURN(wire::CodecMap first, policy.Decide(tensors));
//   policy.Begin(tensors, first);
//   policy.BeginRound(round);                        // before the round's first push
//   if (policy.IsDue(round)) policy.PutReport(round, measured, &threshold_report);
//
// Windows count the rounds of the whole job, also those before it was resumed. The n-th report
// covers the n-th window and is due before the first push after it.
//
// Pure. Thread-compatible: CompressionPlan's mutex guards it.
#ifndef SLIMPS_WORKER_PLAN_POLICY_SIDE_H_
#define SLIMPS_WORKER_PLAN_POLICY_SIDE_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "compress/codec/codec.h"
#include "compress/policy/controllers/controller.h"
#include "compress/policy/controllers/step_choice.h"
#include "compress/policy/robust.h"
#include "proto/slimps.pb.h"
#include "worker/plan/codec_table.h"
#include "worker/tensor/key_table.h"

namespace slimps {

// Returns what a controller is told of a tensor. Its rows are the first dimension.
TensorInfo TensorInfoOf(const TensorPlan& tensor);
TensorInfo TensorInfoOf(const Key& key, std::span<const int64_t> shape);

class PolicySide final {
 public:
  // The policy that is no controller: one threshold for all tensors, as PlanSide has it.
  static constexpr char kThreshold[] = "threshold";

  // Takes the policy. kThreshold: this stays off.
  // InvalidArgument: no such policy or option (names the nearest), or a bad value, or windows that
  // are too short.
  [[nodiscard]] absl::Status Start(const std::string& policy, uint32_t workers);

  // False: the methods below are not called.
  bool on() const { return controller_ != nullptr; }

  // Returns what the policy decides for these tensors before any report, as version 0.
  // InvalidArgument: the policy makes no sense for them.
  [[nodiscard]] absl::StatusOr<wire::CodecMap> Decide(std::vector<TensorInfo> tensors) const;

  // InvalidArgument: no message could hold a report of so many tensors and levels of all of them.
  [[nodiscard]] absl::Status CheckReportSize(size_t tensors, size_t levels) const;

  // Takes the job's tensors, in place of those of an earlier call, and that decision.
  void Begin(std::vector<TensorInfo> tensors, const wire::CodecMap& first);

  // Checks that pushes may change to this codec, and from it, in mid-run. Phases (phases.h) need
  // the same choice on all workers, and are measured in whole gradients, without feedback.
  // InvalidArgument: they may not (says why).
  [[nodiscard]] absl::Status CheckExchangeable(const Codec& codec) const;

  // Takes a decision of the scheduler.
  void Follow(const wire::CodecMap& map);

  // Returns what was decided so far, in order, without the controller's states: the newest
  // kKeptDecisions of those that changed something.
  static constexpr size_t kKeptDecisions = 1000;
  const std::deque<wire::CodecMap>& decisions() const { return decisions_; }

  // Returns what is to be measured of a tensor, the same in all rounds.
  // InvalidArgument: a codec that does not exist, or that CheckExchangeable refuses.
  struct Level {
    const Codec* codec = nullptr;
    std::string name;  // as the policy writes it
  };
  [[nodiscard]] absl::StatusOr<std::vector<Level>> LevelsOf(const TensorInfo& tensor,
                                                            CodecTable* codecs) const;

  // Returns all codecs that a decision may name for the tensor. Errors: as LevelsOf.
  [[nodiscard]] absl::StatusOr<std::vector<const Codec*>> ChoicesOf(const TensorInfo& tensor,
                                                                    CodecTable* codecs) const;

  // Checks the policy's codecs before any tensor is known, and returns those for a large matrix.
  // Errors: as LevelsOf; InvalidArgument: two codecs have phases.
  [[nodiscard]] absl::StatusOr<std::vector<const Codec*>> CheckCodecs(CodecTable* codecs) const;

  // Finds all codecs of a decision. Errors: as LevelsOf.
  [[nodiscard]] absl::Status FindCodecs(const PolicyDecision& decision, CodecTable* codecs) const;

  const ReportPlan& plan() const { return controller_->plan(); }

  // Begins a round, once, in which pushes use step().
  void BeginRound(uint64_t round);
  size_t step() const { return step_; }

  // Takes what the round before was like: the gains |C(x)|^2 / |x|^2 of the steps in force, and how
  // long it took.
  void EndRound(std::span<const double> gains, absl::Duration iteration);

  // Returns how far this worker is after `rounds` rounds, without its samples. `newest` is the
  // newest decision. REQUIRES: no report is unanswered.
  wire::SavedPolicy Save(uint64_t rounds, const wire::CodecMap& newest) const;

  // Goes on from there, in place of the first decision. REQUIRES: it has a decision.
  void Resume(const wire::SavedPolicy& saved);
  bool is_resumed() const { return resumed_.has_value(); }

  // True if a report is due before a push of `round`.
  bool IsDue(uint64_t round) const;

  // Returns the number of the window that ended before `round`.
  uint64_t WindowBefore(uint64_t round) const;

  // Makes the report that is due, of what was measured of tensors. Adds the tensors that `measured`
  // lacks, without levels.
  void PutReport(uint64_t round, Report measured, wire::PolicyReport* report);

 private:
  absl::StatusOr<const Codec*> FindCodec(const std::string& spec, CodecTable* codecs) const;
  void Keep(const wire::CodecMap& map);

  std::string policy_ = kThreshold;
  uint32_t workers_ = 1;
  std::unique_ptr<Controller> controller_;  // asked for plans and candidates only
  std::vector<TensorInfo> tensors_;         // by rising key
  std::deque<PolicyDecision> coming_;       // not in force yet
  std::deque<wire::CodecMap> decisions_;
  std::optional<wire::CodecMap> resumed_;  // what the scheduler's controller must go on from
  std::optional<StepChoice> choice_;
  uint64_t round_ = 0;  // the newest that has begun
  size_t step_ = 0;
  uint64_t reported_ = 0;  // windows
  uint64_t rounds_before_ = 0;
  // Since the last report, in ns. A few long ones, as with an evaluation or a checkpoint between
  // two rounds, do not move their average.
  SampleWindow iteration_times_;
};

}  // namespace slimps

#endif  // SLIMPS_WORKER_PLAN_POLICY_SIDE_H_
