// SPDX-License-Identifier: Apache-2.0
// CompressionPlan: the codec of each tensor's push and pull in a round, as this worker knows it.
//
//                pre_steps rounds pushed              CodecMap arrived
//   profiling  -------------------------> waiting  ------------------> decided
//   (some tensors odd raw, even           (compressed)                 (threshold or map,
//    compressed; stop and wait)                                         from its round on)
//
// A fixed threshold, a loaded table or no compression starts decided. With remeasure_every, some
// later rounds measure a few tensors (MeasuringSchedule) and are reported. A CodecMap answers each
// report. The worker starts no round to which that map might apply until the map arrives. Pushes
// and pulls are decided apart (PlanSide). A policy that adapts decides pushes in the threshold's
// place, by reports of its own (PolicySide).
//
// Source: SlimGC section 3.3. Thread-safe.
#ifndef SLIMPS_WORKER_PLAN_COMPRESSION_PLAN_H_
#define SLIMPS_WORKER_PLAN_COMPRESSION_PLAN_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "compress/codec/codec.h"
#include "compress/policy/threshold_table.h"
#include "proto/base/mutex.h"
#include "proto/slimps.pb.h"
#include "worker/plan/codec_table.h"
#include "worker/plan/measuring_schedule.h"
#include "worker/plan/plan_side.h"
#include "worker/plan/policy_side.h"
#include "worker/tensor/key_table.h"

namespace slimps {

struct CompressionPlanOptions {
  std::string compression = "none";
  std::optional<uint64_t> fixed_threshold_bytes;
  int pre_steps = 20;
  std::optional<ThresholdTable> table;  // loaded: decides at once
  std::string pull_compression = "none";
  std::optional<uint64_t> fixed_pull_threshold_bytes;
  std::optional<ThresholdTable> pull_table;
  uint64_t remeasure_every = 0;  // rounds from one pair of measured rounds to the next; 0: never
  // What decides pushes: "threshold", or a policy that adapts (compress/policy/controllers). Then
  // `compression` is "none".
  std::string policy = PolicySide::kThreshold;
  uint32_t workers = 1;  // of the job
  // Pulls carry changes in the codec of the tensor's push. Needs a policy that adapts.
  bool pulls_follow_policy = false;
  // Returns the learning rate of a round, for a policy that adapts; 0: not known. null: it never
  // is. Called without the plan's lock, from the thread that sends the policy's report.
  std::function<double(uint64_t round)> learning_rate = nullptr;
  // True if this worker measures the tensor; null: it measures every one. Workers may measure
  // different tensors. All use the same codecs all the same.
  std::function<bool(const TensorPlan&)> is_measured = nullptr;
};

class CompressionPlan final {
 public:
  // While the first decision is missing, CodecFor fails when it times out. Later the worker can go
  // on with the decision in force: after this many timeouts it no longer waits for the answer to
  // its last report. Without phases, that is: in those, workers that used different codecs would
  // wait for each other.
  static constexpr int kPatience = 3;

  // InvalidArgument: an unknown codec or option, remeasure_every over 0 but under 8, or
  // a table measured with another codec.
  [[nodiscard]] static absl::StatusOr<std::unique_ptr<CompressionPlan>> Create(
      const CompressionPlanOptions& options);

  // ---- a policy that adapts

  // True if pushes follow one.
  bool adapts() const { return adapts_; }

  // True if the exchange of some codec of pushes has phases, in which all workers take part.
  bool takes_phases() const { return takes_phases_; }

  // Takes all tensors of the job, before the first push; again when there are more of them. What
  // the policy decides for them holds until the scheduler decides. Does nothing without a policy.
  // InvalidArgument: the policy makes no sense for them, or asks for a codec that does not exist or
  // cannot be changed for another in mid-run. Nothing has changed.
  [[nodiscard]] absl::Status BeginPolicy(const std::vector<const TensorPlan*>& tensors);

  // What the policy wants to know, and when. Constant.
  const ReportPlan& report_plan() const { return report_plan_; }

  // Returns the policy's candidates for a tensor, the same in all rounds. They live as long as the
  // plan.
  [[nodiscard]] absl::StatusOr<std::vector<PolicySide::Level>> LevelsOf(const TensorPlan& tensor);

  // Returns all codecs that the policy may choose for a tensor. They live as long as the plan.
  // Errors: those of BeginPolicy.
  [[nodiscard]] absl::StatusOr<std::vector<const Codec*>> ChoicesOf(const TensorInfo& tensor);

  // Returns the codecs among which this worker chooses in `round`; empty: there is no choice. They
  // live as long as the plan.
  [[nodiscard]] absl::StatusOr<std::vector<const Codec*>> StepsFor(const TensorPlan& tensor,
                                                                   uint64_t round);

  // Begins a round, in order, before its first push. `gains` and `iteration` are of the round
  // before (PolicySide::EndRound); nullopt: there was none.
  struct EndedRound {
    std::vector<double> gains;
    absl::Duration iteration;
  };
  void BeginRound(uint64_t round, const std::optional<EndedRound>& before);

  // True if the policy's report is due before a push of `round`.
  bool PolicyReportIsDue(uint64_t round) const;

  // Returns that report, once, with what was measured of tensors.
  wire::ThresholdReport TakePolicyReport(uint64_t round, Report measured);

  // Returns how far this worker's policy is after `rounds` rounds, without its samples. Waits for
  // the answer to the last report. REQUIRES: no push is under way.
  // DeadlineExceeded: the answer did not come.
  [[nodiscard]] absl::StatusOr<wire::SavedPolicy> SavePolicy(uint64_t rounds,
                                                             absl::Duration timeout);

  // Goes on from there. REQUIRES: BeginPolicy was OK, and no push was made.
  // InvalidArgument: decisions that this plan cannot follow. Nothing has changed.
  [[nodiscard]] absl::Status ResumePolicy(const wire::SavedPolicy& saved);

  // Returns PolicySide::decisions().
  std::vector<wire::CodecMap> decisions() const;

  // ---- every plan

  // True for rounds up to pre_steps while nothing is decided: some tensors are measured, alone on
  // the wire.
  bool IsProfiled(uint64_t round) const;

  // True if anything in `round` is measured, for the profile or during training. Nothing else
  // should be on the link.
  bool IsMeasured(uint64_t round) const;

  // True if this tensor's push of `round` is measured, alone on the wire.
  bool MeasuresPush(const TensorPlan& tensor, uint64_t round);

  // True if the pull of the version that `round` makes is measured: the worker asks for it again
  // when that version is there.
  bool MeasuresPull(const TensorPlan& tensor, uint64_t round);

  // Returns the codec of the push. Waits for the decision if `round` needs one.
  // DeadlineExceeded: the other workers did not report.
  [[nodiscard]] absl::StatusOr<const Codec*> CodecFor(const TensorPlan& tensor, uint64_t round,
                                                      absl::Duration timeout);

  // Returns how the version that `round` makes is to be pulled, as its pushes say in change_codec:
  // a codec spec, or "" for the weights as they are. Never waits: before the decision for `round`
  // comes, it goes by what is known so far. A push asks after CodecFor, which has waited.
  std::string ChangeCodecFor(const TensorPlan& tensor, uint64_t round);

  // Records one measured push with the codec of CodecFor. `coding` is the time to encode and decode
  // a compressed push.
  void RecordPush(const TensorPlan& tensor, uint64_t round, absl::Duration communication,
                  absl::Duration coding);

  // Records one measured pull of the version that `round` made. REQUIRES: the answer was of the
  // kind that ChangeCodecFor names. `communication` runs from the request, sent when that version
  // was there, to the last answer. `coding` is the time to encode and decode a change, otherwise
  // zero.
  void RecordPull(const TensorPlan& tensor, uint64_t round, absl::Duration communication,
                  absl::Duration coding);

  // Returns the report that is due before a push of `round`, once; otherwise nullopt.
  std::optional<wire::ThresholdReport> TakeReport(uint64_t round);

  // Returns the last report again while it is unanswered: the report or its answer may be lost.
  std::optional<wire::ThresholdReport> UnansweredReport() const;

  // Returns what the scheduler must know when no more pushes will come.
  std::vector<wire::ThresholdReport> TakeLastReports();

  // Takes a decision of the scheduler. Ignores one that is older than the newest.
  // InvalidArgument: a codec that this worker does not know.
  [[nodiscard]] absl::Status OnCodecMap(const wire::CodecMap& map);

  // Returns the decision in force for a job that is saved; nullopt if there is none. Waits for the
  // answer to the last report. For thresholds: a policy's is part of SavePolicy.
  // DeadlineExceeded: the answer did not come.
  [[nodiscard]] absl::StatusOr<std::optional<wire::CodecMap>> SettledDecision(
      absl::Duration timeout);

  // Goes on from there, after `rounds` rounds. REQUIRES: no push was made.
  // InvalidArgument: a codec that this worker does not know.
  [[nodiscard]] absl::Status ResumeDecision(const wire::CodecMap& decision, uint64_t rounds);

  // Ends every wait, now and later, with `why`.
  void Fail(const absl::Status& why);

  std::optional<wire::CodecMap> decision() const;
  const CompressionPlanOptions& options() const { return options_; }
  // Returns the codec that this worker's pushes are compressed with; codec "none" if they never
  // are. Lives as long as the plan.
  const Codec& compressor() const { return *compressor_; }

 private:
  struct Awaited {
    wire::ThresholdReport report;
    uint64_t from_round = 0;  // the first round for which its answer could hold
    int timeouts = 0;
  };

  explicit CompressionPlan(const CompressionPlanOptions& options);
  // True if a push of `round` need not wait: the plan has failed, or the decision for `round` is
  // known, or `round` is at most the one after the last profiled round.
  bool MayGoOn(uint64_t round) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool Measures(const PlanSide& side, const TensorPlan& tensor, uint64_t round) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  wire::ThresholdReport ProfileReport() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  wire::ThresholdReport PairReport(uint64_t pair, uint64_t round)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status OnPolicyMap(const wire::CodecMap& map) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const CompressionPlanOptions options_;
  const Codec* compressor_ = nullptr;  // one of codecs_; constant after Create
  // Constant after Create.
  bool adapts_ = false;
  bool takes_phases_ = false;
  ReportPlan report_plan_;

  mutable Mutex mutex_;
  // False while profiling, and while waiting for the answer to the profile.
  bool is_decided_ ABSL_GUARDED_BY(mutex_) = true;
  CodecTable codecs_ ABSL_GUARDED_BY(mutex_);
  MeasuringSchedule schedule_ ABSL_GUARDED_BY(mutex_);
  PlanSide push_ ABSL_GUARDED_BY(mutex_);
  PlanSide pull_ ABSL_GUARDED_BY(mutex_);
  PolicySide policy_ ABSL_GUARDED_BY(mutex_);
  uint64_t reported_pair_ ABSL_GUARDED_BY(mutex_) = 0;
  std::optional<Awaited> awaited_ ABSL_GUARDED_BY(mutex_);
  std::optional<wire::CodecMap> decision_ ABSL_GUARDED_BY(mutex_);
  absl::Status failed_ ABSL_GUARDED_BY(mutex_);
  CondVar decided_;
};

}  // namespace slimps

#endif  // SLIMPS_WORKER_PLAN_COMPRESSION_PLAN_H_
