// SPDX-License-Identifier: Apache-2.0
// PlanSide: one direction of a compression plan, pushes or pulls. It knows which codec a tensor
// takes in a round, and keeps the times measured of both ways.
//
//   std::string spec = side.SpecFor(tensor, round);
//   if (side.Measures(tensor, round)) side.Record(tensor, round, StepKind::kRaw, time, coding);
//   side.ReportPairs(round, &report);
//
// A measured round uses the codec as it is after its warm-up (Codec::settled_spec), whatever the
// round: the table must hold for the rounds to come.
//
// Pure. Thread-compatible: CompressionPlan's mutex guards it.
#ifndef SLIMPS_WORKER_PLAN_PLAN_SIDE_H_
#define SLIMPS_WORKER_PLAN_PLAN_SIDE_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "compress/codec/codec.h"
#include "compress/policy/codec_map.h"
#include "compress/policy/threshold_table.h"
#include "proto/slimps.pb.h"
#include "worker/plan/measuring_schedule.h"
#include "worker/tensor/key_table.h"

namespace slimps {

class PlanSide final {
 public:
  static constexpr char kRaw[] = "none";

  // Compresses nothing until Start. REQUIRES: `schedule` outlives this.
  PlanSide(wire::Direction direction, const MeasuringSchedule* schedule)
      : direction_(direction), schedule_(schedule) {}

  // Uses `codec`, given as `spec`, from a fixed threshold, or from the one that a loaded table
  // says. Without both it profiles, if there are rounds for that. A table that lacks
  // the times of one way counts as none.
  // InvalidArgument: the table was measured with another codec, or the codec's exchange has phases
  // and no fixed threshold is given.
  [[nodiscard]] absl::Status Start(const std::string& spec, const Codec& codec,
                                   const std::optional<uint64_t>& fixed_threshold,
                                   const std::optional<ThresholdTable>& table);

  // Follows a policy's controller: `decided` holds until the scheduler decides.
  void StartPolicy(CodecMap decided);

  // True if the scheduler decides for this side, by what workers measure.
  bool automatic() const { return automatic_; }
  // True if the first pre_steps rounds are measured. Until the first decision every tensor is
  // compressed, but for those that a measured round sends raw.
  bool profiled() const { return profiled_; }
  // Returns the codec after its warm-up.
  const std::string& settled_codec() const { return settled_codec_; }
  const ThresholdTable& profile() const { return profile_; }
  const CodecDecision& newest() const { return map_.newest(); }

  // Takes a decision of the scheduler. Errors: those of CodecMap::Apply.
  [[nodiscard]] absl::Status Apply(CodecDecision decision);

  // Returns the codec that holds for the tensor in `round`; "none": it goes as it is. `step` is the
  // worker's step where the decision leaves a choice.
  std::string SpecFor(const TensorPlan& tensor, uint64_t round, size_t step = 0) const;

  // Returns the codecs among which the worker chooses; empty: the decision leaves no choice.
  std::vector<std::string> StepsFor(const TensorPlan& tensor, uint64_t round) const;

  // Forgets decisions that no round from `round` on needs.
  void ForgetBefore(uint64_t round) { map_.ForgetBefore(round); }

  bool Measures(const TensorPlan& tensor, uint64_t round) const;

  // Records one measured time. REQUIRES: Measures(tensor, round).
  void Record(const TensorPlan& tensor, uint64_t round, StepKind kind, absl::Duration communication,
              absl::Duration coding);

  // Adds what the profile has measured.
  void ReportProfile(wire::ThresholdReport* report);

  // Adds what the newest pairs have measured, and the threshold in force. Forgets decisions that no
  // round needs any more.
  void ReportPairs(uint64_t round, wire::ThresholdReport* report);

 private:
  // True if the profile, or a pair of rounds, measures this tensor in `round`.
  bool IsInPair(const TensorPlan& tensor, uint64_t round) const;
  // Returns what to report now.
  ThresholdTable Recent() const;
  void NameCodec(wire::ThresholdReport* report) const;

  const wire::Direction direction_;
  const MeasuringSchedule* const schedule_;
  std::string codec_ = kRaw;
  std::string settled_codec_ = kRaw;  // the same after its warm-up: what is measured
  bool automatic_ = false;
  bool profiled_ = false;
  CodecMap map_;
  ThresholdTable profile_;
  std::map<uint64_t, ThresholdTable> pairs_;  // by pair of measured rounds; the newest only
};

}  // namespace slimps

#endif  // SLIMPS_WORKER_PLAN_PLAN_SIDE_H_
