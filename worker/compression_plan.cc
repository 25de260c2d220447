#include "worker/compression_plan.h"

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "proto/base/status_macros.h"

namespace slimps {
namespace {

constexpr char kRaw[] = "none";

// How a tensor travels that is not compressed.
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

void ToProto(const ThresholdRow& row, wire::ThresholdRow* proto) {
  proto->set_bytes(row.bytes);
  proto->set_t_c_ms(absl::ToDoubleMilliseconds(row.t_c));
  proto->set_t_cq_ms(absl::ToDoubleMilliseconds(row.t_cq));
  proto->set_t_pq_ms(absl::ToDoubleMilliseconds(row.t_pq));
  proto->set_raw_samples(row.raw_samples);
  proto->set_compressed_samples(row.compressed_samples);
}

CodecDecision FromProto(const wire::CodecMap& map) {
  CodecDecision decision{.version = map.version(),
                         .from_round = map.from_round(),
                         .codec_below = map.codec_below(),
                         .codec = map.codec()};
  if (map.has_threshold()) decision.threshold_bytes = map.threshold_bytes();
  for (const wire::CodecEntry& entry : map.entries()) decision.entries[entry.key()] = entry.codec();
  return decision;
}

wire::CodecMap ToProto(const CodecDecision& decision, const ThresholdTable& table) {
  wire::CodecMap map;
  map.set_version(decision.version);
  map.set_from_round(decision.from_round);
  map.set_has_threshold(decision.threshold_bytes.has_value());
  map.set_threshold_bytes(decision.threshold_bytes.value_or(0));
  map.set_codec_below(decision.codec_below);
  map.set_codec(decision.codec);
  for (const ThresholdRow& row : table.Rows()) ToProto(row, map.add_table());
  return map;
}

// A table's times are its codec's.
absl::Status CheckTableIsFor(const ThresholdTable& table, const CodecSpec& spec) {
  const auto measured = ParseCodecSpec(table.codec());
  if (measured.ok() && *measured == spec) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("threshold table: expected one that was measured with codec ", spec.ToString(),
                   ", got one of codec ", table.codec()));
}

}  // namespace

absl::StatusOr<std::unique_ptr<CompressionPlan>> CompressionPlan::Create(
    const CompressionPlanOptions& options) {
  auto plan = std::unique_ptr<CompressionPlan>(new CompressionPlan(options));
  MutexLock lock(&plan->mutex_);
  SLIMPS_ASSIGN_OR_RETURN(plan->compressor_, plan->FindCodec(options.compression));
  plan->table_ = ThresholdTable(options.compression);
  const bool compresses = options.compression != kRaw;
  if (compresses && !options.fixed_threshold_bytes && !options.table && options.pre_steps > 0) {
    return plan;  // profile first
  }
  CodecDecision decision{.codec = options.compression};
  decision.threshold_bytes = options.fixed_threshold_bytes;
  if (!options.fixed_threshold_bytes && options.table) {
    SLIMPS_RETURN_IF_ERROR(CheckTableIsFor(*options.table, plan->compressor_->spec()));
    plan->table_ = *options.table;
    decision.threshold_bytes = options.table->BestCompressionThreshold();
  }
  plan->state_ = State::kDecided;
  plan->map_ = CodecMap(decision);
  if (compresses) plan->decision_ = ToProto(decision, plan->table_);
  return plan;
}

bool CompressionPlan::IsProfiled(uint64_t round) const {
  MutexLock lock(&mutex_);
  return state_ == State::kProfiling && round <= static_cast<uint64_t>(options_.pre_steps);
}

bool CompressionPlan::MayGoOn(uint64_t round) const {
  return state_ == State::kDecided || !failed_.ok() ||
         round <= static_cast<uint64_t>(options_.pre_steps) + 1;
}

absl::StatusOr<const Codec*> CompressionPlan::CodecFor(const TensorPlan& tensor, uint64_t round,
                                                       absl::Duration timeout) {
  MutexLock lock(&mutex_);
  const auto may_go_on = [this, round]()
                             ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return MayGoOn(round); };
  if (!decided_.Await(&mutex_, timeout, may_go_on)) {
    return absl::DeadlineExceededError(absl::StrCat(
        "key ", tensor.key.typed_name(), " round ", round, ": no threshold decision within ",
        absl::FormatDuration(timeout), "; not every worker has finished its ", options_.pre_steps,
        " profiling rounds"));
  }
  SLIMPS_RETURN_IF_ERROR(failed_);
  std::string spec = kRaw;
  if (state_ == State::kDecided) {
    spec = map_.CodecFor(tensor.key.id(), tensor.bytes(), round);
  } else if (state_ == State::kProfiling &&
             ProfilingStep(round, static_cast<uint64_t>(options_.pre_steps)) ==
                 StepKind::kCompressed) {
    spec = options_.compression;
  }
  return FindCodec(spec == kRaw ? OwnPrecision(tensor.info.dtype()) : spec);
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

void CompressionPlan::Record(const TensorPlan& tensor, uint64_t round, absl::Duration communication,
                             absl::Duration coding) {
  if (!ProfilingCounts(round)) return;
  MutexLock lock(&mutex_);
  if (state_ != State::kProfiling) return;
  switch (ProfilingStep(round, static_cast<uint64_t>(options_.pre_steps))) {
    case StepKind::kRaw:
      return table_.AddRaw(tensor.bytes(), communication);
    case StepKind::kCompressed:
      return table_.AddCompressed(tensor.bytes(), communication, coding);
    case StepKind::kDecided:
      return;
  }
}

std::optional<wire::ThresholdReport> CompressionPlan::TakeReport() {
  MutexLock lock(&mutex_);
  if (state_ != State::kProfiling) return std::nullopt;
  state_ = State::kWaiting;
  wire::ThresholdReport report;
  for (const ThresholdRow& row : table_.Rows()) ToProto(row, report.add_rows());
  // Round pre_steps + 1 goes out raw while the tables travel, so that nobody waits for them if they
  // are quick.
  report.set_ready_round(static_cast<uint64_t>(options_.pre_steps) + 1);
  report.set_codec(options_.compression);
  return report;
}

absl::Status CompressionPlan::OnCodecMap(const wire::CodecMap& map) {
  MutexLock lock(&mutex_);
  SLIMPS_RETURN_IF_ERROR(FindCodec(map.codec()).status());
  SLIMPS_RETURN_IF_ERROR(FindCodec(map.codec_below()).status());
  for (const wire::CodecEntry& entry : map.entries()) {
    SLIMPS_RETURN_IF_ERROR(FindCodec(entry.codec()).status());
  }
  SLIMPS_RETURN_IF_ERROR(map_.Apply(FromProto(map)));
  decision_ = map;
  state_ = State::kDecided;
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
