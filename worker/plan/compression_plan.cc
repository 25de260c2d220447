// SPDX-License-Identifier: Apache-2.0
#include "worker/plan/compression_plan.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"
#include "compress/policy/table_rows.h"
#include "proto/base/status_macros.h"
#include "worker/plan/decision_proto.h"

namespace slimps {
namespace {

constexpr char kRaw[] = "none";
// A pair of rounds measures one tensor of each chosen size. Of a size up to kSmallBytes it measures
// kSmallTensors: they cost little more than start-up time.
constexpr uint64_t kSmallBytes = 64 << 10;
constexpr size_t kSmallTensors = 4;

// Returns the codec in which an uncompressed tensor travels.
const char* OwnPrecision(wire::DType dtype) {
  switch (dtype) {
    case wire::FLOAT16:
      return "fp16";
    case wire::BFLOAT16:
      return "bf16";
    default:
      return kRaw;
  }
}

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

absl::Status CheckRemeasureEvery(uint64_t rounds) {
  if (rounds == 0 || rounds >= MeasuredRounds::kShortestEvery) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("remeasure_every=", rounds,
                                                 ": expected 0 (never) or at least ",
                                                 MeasuredRounds::kShortestEvery, " rounds"));
}

}  // namespace

CompressionPlan::CompressionPlan(const CompressionPlanOptions& options) : options_(options) {}

absl::StatusOr<std::unique_ptr<CompressionPlan>> CompressionPlan::Create(
    const CompressionPlanOptions& options) {
  SLIMPS_RETURN_IF_ERROR(CheckRemeasureEvery(options.remeasure_every));
  auto plan = std::unique_ptr<CompressionPlan>(new CompressionPlan(options));
  MutexLock lock(&plan->mutex_);
  SLIMPS_ASSIGN_OR_RETURN(plan->compressor_, plan->FindCodec(options.compression));
  SLIMPS_ASSIGN_OR_RETURN(plan->pull_compressor_, plan->FindCodec(options.pull_compression));
  plan->push_.codec = options.compression;
  plan->pull_.codec = options.pull_compression;
  plan->push_.settled_codec = Settled(options.compression, *plan->compressor_);
  plan->pull_.settled_codec = Settled(options.pull_compression, *plan->pull_compressor_);
  SLIMPS_RETURN_IF_ERROR(plan->StartSide(options.fixed_threshold_bytes, options.table,
                                         *plan->compressor_, &plan->push_));
  SLIMPS_RETURN_IF_ERROR(plan->StartSide(options.fixed_pull_threshold_bytes, options.pull_table,
                                         *plan->pull_compressor_, &plan->pull_));
  const bool profiles = plan->push_.profiled || plan->pull_.profiled;
  if (plan->push_.automatic || plan->pull_.automatic) {
    plan->rounds_ = MeasuredRounds(options.remeasure_every,
                                   profiles ? static_cast<uint64_t>(options.pre_steps) + 2 : 1);
  }
  if (profiles) {
    plan->state_ = State::kProfiling;
  } else if (options.compression != kRaw || options.pull_compression != kRaw) {
    wire::CodecMap& decision = plan->decision_.emplace();
    SetPushDecision(plan->push_.map.newest(), &decision);
    SetPullDecision(plan->pull_.map.newest(), &decision);
    AddRows(plan->push_.profile, wire::PUSH, decision.mutable_table());
    AddRows(plan->pull_.profile, wire::PULL, decision.mutable_table());
  }
  return plan;
}

absl::Status CompressionPlan::StartSide(const std::optional<uint64_t>& fixed_threshold,
                                        const std::optional<ThresholdTable>& table,
                                        const Codec& codec, Side* side) {
  side->profile = ThresholdTable(side->codec);
  if (side->codec == kRaw) return absl::OkStatus();
  side->automatic = !fixed_threshold.has_value() && (table.has_value() || options_.pre_steps > 0);
  side->profiled = side->automatic && !table.has_value();
  if (side->profiled) return absl::OkStatus();
  CodecDecision decision{.codec = side->codec};
  decision.threshold_bytes = fixed_threshold;
  if (side->automatic) {
    SLIMPS_RETURN_IF_ERROR(CheckTableIsFor(*table, codec.spec()));
    side->profile = *table;
    decision.threshold_bytes = table->BestCompressionThreshold();
  }
  side->map = CodecMap(decision);
  return absl::OkStatus();
}

// ---- what a round does --------------------------------------------------------------------------

bool CompressionPlan::IsProfiled(uint64_t round) const {
  MutexLock lock(&mutex_);
  return state_ == State::kProfiling && round <= static_cast<uint64_t>(options_.pre_steps);
}

bool CompressionPlan::IsMeasured(uint64_t round) const {
  if (IsProfiled(round)) return true;
  MutexLock lock(&mutex_);
  return (push_.automatic || pull_.automatic) && rounds_.KindOf(round) != RoundKind::kNotMeasured;
}

void CompressionPlan::See(const TensorPlan& tensor) {
  if ((!rounds_.on() && state_ != State::kProfiling) ||
      !tensors_[tensor.bytes()].insert(tensor.key.id()).second)
    return;
  ++counts_[tensor.bytes()];
}

bool CompressionPlan::IsChosen(const Side& side, const TensorPlan& tensor, uint64_t round) const {
  const CodecDecision& decision = side.map.DecisionAt(round);
  const auto keys = tensors_.find(tensor.bytes());
  if (keys == tensors_.end() || decision.entries.contains(tensor.key.id())) return false;
  const uint64_t pair = rounds_.PairOf(round);
  if (!ChooseSizes(counts_, decision.threshold_bytes, pair).contains(tensor.bytes())) return false;
  // Each pair takes the next tensors of the size.
  const size_t wanted = tensor.bytes() <= kSmallBytes ? kSmallTensors : 1;
  const size_t there = keys->second.size();
  const auto index =
      static_cast<size_t>(std::distance(keys->second.begin(), keys->second.find(tensor.key.id())));
  return index < there && (index + there - pair % there) % there < wanted;
}

bool CompressionPlan::Measures(const Side& side, const TensorPlan& tensor, uint64_t round) const {
  if (options_.is_measured != nullptr && !options_.is_measured(tensor)) return false;
  if (round <= static_cast<uint64_t>(options_.pre_steps) && state_ == State::kProfiling) {
    return side.profiled;
  }
  return side.automatic && rounds_.KindOf(round) != RoundKind::kNotMeasured &&
         IsChosen(side, tensor, round);
}

bool CompressionPlan::MeasuresPush(const TensorPlan& tensor, uint64_t round) {
  MutexLock lock(&mutex_);
  See(tensor);
  return Measures(push_, tensor, round);
}

bool CompressionPlan::MeasuresPull(const TensorPlan& tensor, uint64_t round) {
  // A tensor in half precision is pulled as it is in every round: there is nothing to compare.
  if (tensor.info.dtype() != wire::FLOAT32) return false;
  MutexLock lock(&mutex_);
  return Measures(pull_, tensor, round);
}

bool CompressionPlan::MayGoOn(uint64_t round) const {
  if (!failed_.ok()) return true;
  if (state_ != State::kDecided) return round <= static_cast<uint64_t>(options_.pre_steps) + 1;
  return !awaited_.has_value() || round < awaited_->from_round;
}

std::string CompressionPlan::SpecFor(const Side& side, const TensorPlan& tensor,
                                     uint64_t round) const {
  if (side.profiled && round <= static_cast<uint64_t>(options_.pre_steps)) {
    const StepKind step = ProfilingStep(round, static_cast<uint64_t>(options_.pre_steps));
    return step == StepKind::kCompressed ? side.settled_codec : kRaw;
  }
  std::string spec(side.map.CodecFor(tensor.key.id(), tensor.bytes(), round));
  const RoundKind kind = rounds_.KindOf(round);
  if (!side.automatic || kind == RoundKind::kNotMeasured || !IsChosen(side, tensor, round)) {
    return spec;
  }
  if (kind == RoundKind::kOtherWay) spec = spec == kRaw ? side.codec : kRaw;
  return spec == side.codec ? side.settled_codec : spec;
}

absl::StatusOr<const Codec*> CompressionPlan::CodecFor(const TensorPlan& tensor, uint64_t round,
                                                       absl::Duration timeout) {
  MutexLock lock(&mutex_);
  See(tensor);
  const auto may_go_on = [this, round]()
                             ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return MayGoOn(round); };
  if (!decided_.Await(&mutex_, timeout, may_go_on)) {
    if (state_ != State::kDecided || ++awaited_->timeouts < kPatience) {
      return absl::DeadlineExceededError(absl::StrCat(
          "key ", tensor.key.typed_name(), " round ", round, ": no threshold decision within ",
          absl::FormatDuration(timeout), "; not every worker has reported what it measured"));
    }
    // Goes on with what is in force. That is safe: servers take every format, and pulls say what
    // they are.
    awaited_.reset();
    decided_.NotifyAll();
  }
  SLIMPS_RETURN_IF_ERROR(failed_);
  const std::string spec = SpecFor(push_, tensor, round);
  return FindCodec(spec == kRaw ? OwnPrecision(tensor.info.dtype()) : spec);
}

std::string CompressionPlan::ChangeCodecFor(const TensorPlan& tensor, uint64_t round) {
  MutexLock lock(&mutex_);
  const std::string spec = SpecFor(pull_, tensor, round);
  return spec == kRaw ? "" : spec;
}

absl::StatusOr<const Codec*> CompressionPlan::FindCodec(const std::string& spec) {
  auto found = codecs_.find(spec);
  if (found == codecs_.end()) {
    SLIMPS_ASSIGN_OR_RETURN(const CodecSpec parsed, ParseCodecSpec(spec));
    SLIMPS_ASSIGN_OR_RETURN(std::unique_ptr<Codec> codec, MakeCodec(parsed));
    found = codecs_.emplace(spec, std::move(codec)).first;
  }
  return found->second.get();
}

// ---- what was measured --------------------------------------------------------------------------

void CompressionPlan::Record(Side* side, const TensorPlan& tensor, uint64_t round, StepKind kind,
                             absl::Duration communication, absl::Duration coding) {
  if (!Measures(*side, tensor, round)) return;
  ThresholdTable* table = &side->profile;
  if (state_ == State::kProfiling) {
    if (!ProfilingCounts(round)) return;
  } else {
    std::map<uint64_t, ThresholdTable>& pairs = side->pairs;
    const uint64_t pair = rounds_.PairOf(round);
    // This tensor is pushed more seldom than others: its pair is older than all that are kept.
    if (pairs.size() == MeasuredRounds::kKeptPairs && pair < pairs.begin()->first) return;
    table = &pairs.try_emplace(pair, ThresholdTable(side->codec)).first->second;
    if (pairs.size() > MeasuredRounds::kKeptPairs) pairs.erase(pairs.begin());
  }
  if (kind == StepKind::kRaw) {
    table->AddRaw(tensor.bytes(), communication);
  } else {
    table->AddCompressed(tensor.bytes(), communication, coding);
  }
}

void CompressionPlan::RecordPush(const TensorPlan& tensor, uint64_t round,
                                 absl::Duration communication, absl::Duration coding) {
  MutexLock lock(&mutex_);
  // The round's choice tells, not the codec that pushed: a tensor's own precision may be the very
  // codec that is compared with.
  const bool compressed = SpecFor(push_, tensor, round) == push_.settled_codec;
  Record(&push_, tensor, round, compressed ? StepKind::kCompressed : StepKind::kRaw, communication,
         coding);
}

void CompressionPlan::RecordPull(const TensorPlan& tensor, uint64_t round,
                                 absl::Duration communication, absl::Duration coding) {
  MutexLock lock(&mutex_);
  const bool raw = SpecFor(pull_, tensor, round) == kRaw;
  Record(&pull_, tensor, round, raw ? StepKind::kRaw : StepKind::kCompressed, communication,
         coding);
}

// ---- reports and decisions ----------------------------------------------------------------------

ThresholdTable CompressionPlan::Recent(const Side& side) const {
  std::vector<ThresholdTable> tables;
  // The profile is one more sample until there are enough pairs.
  if (side.pairs.size() < MeasuredRounds::kKeptPairs) tables.push_back(side.profile);
  for (const auto& [pair, table] : side.pairs) tables.push_back(table);
  ThresholdTable recent = ThresholdTable::Average(tables);
  for (const auto& [bytes, count] : counts_) recent.AddSize(bytes, count);
  return recent;
}

wire::ThresholdReport CompressionPlan::ProfileReport() {
  state_ = State::kWaiting;
  wire::ThresholdReport report;
  for (const auto& [side, direction] :
       {std::pair(&push_, wire::PUSH), std::pair(&pull_, wire::PULL)}) {
    if (!side->profiled) continue;
    for (const ThresholdRow& row : side->profile.Rows()) {
      const auto count = counts_.find(row.bytes);
      if (count != counts_.end()) side->profile.AddSize(row.bytes, count->second);
    }
    AddRows(side->profile, direction, report.mutable_rows());
  }
  // Round pre_steps + 1 goes out raw while the tables travel, so that no worker waits if they are
  // quick.
  report.set_ready_round(static_cast<uint64_t>(options_.pre_steps) + 1);
  if (push_.profiled) report.set_codec(push_.codec);
  if (pull_.profiled) report.set_pull_codec(pull_.codec);
  awaited_ = Awaited{.report = report, .from_round = report.ready_round() + 1};
  return report;
}

wire::ThresholdReport CompressionPlan::PairReport(uint64_t pair, uint64_t round) {
  reported_pair_ = pair;
  wire::ThresholdReport report;
  for (const auto& [side, direction] :
       {std::pair(&push_, wire::PUSH), std::pair(&pull_, wire::PULL)}) {
    if (side->automatic) {
      AddRows(Recent(*side), direction, report.mutable_rows());
      wire::ThresholdInForce* const in_force = report.add_in_force();
      const std::optional<uint64_t> threshold = side->map.DecisionAt(round).threshold_bytes;
      in_force->set_direction(direction);
      in_force->set_has_threshold(threshold.has_value());
      in_force->set_threshold_bytes(threshold.value_or(0));
    }
    side->map.ForgetBefore(round - rounds_.ReportRoundOf(1));
  }
  report.set_ready_round(round + 1);
  if (push_.automatic) report.set_codec(push_.codec);
  if (pull_.automatic) report.set_pull_codec(pull_.codec);
  report.set_generation(pair);
  awaited_ = Awaited{.report = report,
                     .from_round = report.ready_round() + MeasuredRounds::kAnnounceRounds};
  return report;
}

std::optional<wire::ThresholdReport> CompressionPlan::TakeReport(uint64_t round) {
  MutexLock lock(&mutex_);
  if (state_ == State::kProfiling) {
    if (round <= static_cast<uint64_t>(options_.pre_steps)) return std::nullopt;
    return ProfileReport();
  }
  const uint64_t pair = rounds_.PairOf(round);
  if (state_ != State::kDecided || pair <= reported_pair_ || round < rounds_.ReportRoundOf(pair)) {
    return std::nullopt;
  }
  return PairReport(pair, round);
}

std::optional<wire::ThresholdReport> CompressionPlan::UnansweredReport() const {
  MutexLock lock(&mutex_);
  if (!awaited_.has_value()) return std::nullopt;
  return awaited_->report;
}

std::vector<wire::ThresholdReport> CompressionPlan::TakeLastReports() {
  MutexLock lock(&mutex_);
  std::vector<wire::ThresholdReport> reports;
  if (state_ == State::kProfiling) reports.push_back(ProfileReport());
  if (rounds_.on()) reports.emplace_back().set_generation(MeasuredRounds::kLastGeneration);
  return reports;
}

absl::Status CompressionPlan::OnCodecMap(const wire::CodecMap& map) {
  MutexLock lock(&mutex_);
  // The answer to a repeated report may come after a newer decision.
  if (decision_.has_value() && map.version() < decision_->version()) return absl::OkStatus();
  // decision() tells what is in force: of a side that the scheduler does not decide, this worker's
  // own choice.
  wire::CodecMap decision = map;
  if (push_.automatic && !map.codec().empty()) {
    SLIMPS_RETURN_IF_ERROR(FindCodec(map.codec()).status());
    SLIMPS_RETURN_IF_ERROR(FindCodec(map.codec_below()).status());
    for (const wire::CodecEntry& entry : map.entries()) {
      SLIMPS_RETURN_IF_ERROR(FindCodec(entry.codec()).status());
    }
    SLIMPS_RETURN_IF_ERROR(push_.map.Apply(PushDecisionOf(map)));
  } else {
    SetPushDecision(push_.map.newest(), &decision);
  }
  if (pull_.automatic && !map.pull_codec().empty()) {
    SLIMPS_RETURN_IF_ERROR(FindCodec(map.pull_codec()).status());
    SLIMPS_RETURN_IF_ERROR(pull_.map.Apply(PullDecisionOf(map)));
  } else {
    SetPullDecision(pull_.map.newest(), &decision);
  }
  decision_ = std::move(decision);
  state_ = State::kDecided;
  // Version g + 1 answers generation g.
  if (awaited_.has_value() && map.version() > awaited_->report.generation()) awaited_.reset();
  decided_.NotifyAll();
  return absl::OkStatus();
}

void CompressionPlan::Fail(const absl::Status& why) {
  MutexLock lock(&mutex_);
  if (failed_.ok()) failed_ = why;
  decided_.NotifyAll();
}

std::optional<wire::CodecMap> CompressionPlan::decision() const {
  MutexLock lock(&mutex_);
  return decision_;
}

}  // namespace slimps
