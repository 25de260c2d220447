// SPDX-License-Identifier: Apache-2.0
#include "worker/plan/plan_side.h"

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "compress/policy/table_rows.h"
#include "compress/policy/threshold_choice.h"
#include "proto/base/status_macros.h"

namespace slimps {
namespace {

// Refuses a table of another codec: a table's times are those of its codec.
absl::Status CheckTableIsFor(const ThresholdTable& table, const CodecSpec& spec) {
  const auto measured = ParseCodecSpec(table.codec());
  if (measured.ok() && *measured == spec) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("threshold table: expected one that was measured with codec ", spec.ToString(),
                   ", got one of codec ", table.codec()));
}

// Returns the spec after the codec's warm-up. A codec without one keeps the name that it was given.
std::string Settled(const std::string& spec, const Codec& codec) {
  return codec.settled_spec() == codec.spec() ? spec : codec.settled_spec().ToString();
}

}  // namespace

absl::Status PlanSide::Start(const std::string& spec, const Codec& codec,
                             const std::optional<uint64_t>& fixed_threshold,
                             const std::optional<ThresholdTable>& table) {
  codec_ = spec;
  settled_codec_ = Settled(spec, codec);
  profile_ = ThresholdTable(codec_);
  if (codec_ == kRaw) return absl::OkStatus();
  const bool decides = table.has_value() && AreComparable(table->Rows());
  automatic_ = !fixed_threshold.has_value() && (decides || schedule_->pre_steps() > 0);
  profiled_ = automatic_ && !decides;
  if (automatic_ && codec.phases() != nullptr) {
    return absl::InvalidArgumentError(absl::StrCat(
        "codec ", codec.spec().name,
        ": its exchange of several phases is not measured for an "
        "automatic threshold; expected a threshold in bytes, 0 for every tensor that it takes"));
  }
  CodecDecision decision{.codec = codec_};
  decision.threshold_bytes = fixed_threshold;
  if (profiled_) {
    // Until the first decision every tensor is compressed: that is what the user asked for.
    decision.threshold_bytes = 0;
  } else if (automatic_) {
    SLIMPS_RETURN_IF_ERROR(CheckTableIsFor(*table, codec.spec()));
    profile_ = *table;
    decision.threshold_bytes = table->BestCompressionThreshold();
  }
  map_ = CodecMap(decision);
  return absl::OkStatus();
}

void PlanSide::StartPolicy(CodecMap decided) {
  automatic_ = true;
  map_ = std::move(decided);
}

absl::Status PlanSide::Apply(CodecDecision decision) { return map_.Apply(std::move(decision)); }

bool PlanSide::IsInPair(const TensorPlan& tensor, uint64_t round) const {
  if (profiled_ && round <= schedule_->pre_steps()) {
    return ProfilingCounts(round) && schedule_->IsChosen(tensor, round, /*threshold=*/std::nullopt);
  }
  if (!automatic_ || schedule_->pairs().KindOf(round) == RoundKind::kNotMeasured) return false;
  const CodecDecision& decision = map_.DecisionAt(round);
  return !decision.entries.contains(tensor.key.id()) &&
         schedule_->IsChosen(tensor, round, decision.threshold_bytes);
}

std::string PlanSide::SpecFor(const TensorPlan& tensor, uint64_t round, size_t step) const {
  std::string spec(map_.CodecFor(tensor.key.id(), tensor.bytes(), round, step));
  if (!IsInPair(tensor, round)) return spec;
  const bool of_profile = profiled_ && round <= schedule_->pre_steps();
  const bool other_way = of_profile ? ProfilingStep(round, schedule_->pre_steps()) == StepKind::kRaw
                                    : schedule_->pairs().KindOf(round) == RoundKind::kOtherWay;
  if (other_way) spec = spec == kRaw ? codec_ : kRaw;
  return spec == codec_ ? settled_codec_ : spec;
}

std::vector<std::string> PlanSide::StepsFor(const TensorPlan& tensor, uint64_t round) const {
  const CodecDecision& decision = map_.DecisionAt(round);
  const auto entry = decision.entries.find(tensor.key.id());
  if (entry == decision.entries.end() || entry->second.size() < 2) return {};
  return entry->second;
}

bool PlanSide::Measures(const TensorPlan& tensor, uint64_t round) const {
  const bool is_reported = profiled_ && !schedule_->profiling() && round <= schedule_->pre_steps();
  return !is_reported && IsInPair(tensor, round);
}

void PlanSide::Record(const TensorPlan& tensor, uint64_t round, StepKind kind,
                      absl::Duration communication, absl::Duration coding) {
  ThresholdTable* table = &profile_;
  if (!schedule_->profiling()) {
    const uint64_t pair = schedule_->pairs().PairOf(round);
    // This tensor is pushed more seldom than others: its pair is older than all that are kept.
    if (pairs_.size() == MeasuredRounds::kKeptPairs && pair < pairs_.begin()->first) return;
    table = &pairs_.try_emplace(pair, ThresholdTable(codec_)).first->second;
    if (pairs_.size() > MeasuredRounds::kKeptPairs) pairs_.erase(pairs_.begin());
  }
  if (kind == StepKind::kRaw) {
    table->AddRaw(tensor.bytes(), communication);
  } else {
    table->AddCompressed(tensor.bytes(), communication, coding);
  }
}

ThresholdTable PlanSide::Recent() const {
  std::vector<ThresholdTable> tables;
  // The profile is one more sample until there are enough pairs.
  if (pairs_.size() < MeasuredRounds::kKeptPairs) tables.push_back(profile_);
  for (const auto& [pair, table] : pairs_) tables.push_back(table);
  ThresholdTable recent = ThresholdTable::Average(tables);
  for (const auto& [bytes, count] : schedule_->counts()) recent.AddSize(bytes, count);
  return recent;
}

void PlanSide::NameCodec(wire::ThresholdReport* report) const {
  *(direction_ == wire::PUSH ? report->mutable_codec() : report->mutable_pull_codec()) = codec_;
}

void PlanSide::ReportProfile(wire::ThresholdReport* report) {
  if (!profiled_) return;
  for (const auto& [bytes, count] : schedule_->counts()) profile_.AddSize(bytes, count);
  AddRows(profile_, direction_, report->mutable_rows());
  NameCodec(report);
}

void PlanSide::ReportPairs(uint64_t round, wire::ThresholdReport* report) {
  if (automatic_) {
    AddRows(Recent(), direction_, report->mutable_rows());
    wire::ThresholdInForce* const in_force = report->add_in_force();
    const std::optional<uint64_t> threshold = map_.DecisionAt(round).threshold_bytes;
    in_force->set_direction(direction_);
    in_force->set_has_threshold(threshold.has_value());
    in_force->set_threshold_bytes(threshold.value_or(0));
    NameCodec(report);
  }
  map_.ForgetBefore(round - schedule_->pairs().ReportRoundOf(1));
}

}  // namespace slimps
