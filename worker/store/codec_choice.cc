// SPDX-License-Identifier: Apache-2.0
#include "worker/store/codec_choice.h"

#include <algorithm>
#include <span>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "compress/policy/table_rows.h"
#include "compress/policy/threshold_explanation.h"
#include "compress/policy/threshold_table_file.h"
#include "glog/logging.h"
#include "proto/base/status_macros.h"
#include "proto/base/trace/trace.h"
#include "proto/learning_rate.h"
#include "worker/combination.h"
#include "worker/plan/decision_proto.h"
#include "worker/pull/pulled_form.h"

namespace slimps {
namespace {

absl::StatusOr<std::unique_ptr<const Codec>> MakePullCodec(const std::string& text) {
  absl::StatusOr<std::unique_ptr<Codec>> codec = MakeCodec(text);
  if (codec.ok()) return *std::move(codec);
  return absl::InvalidArgumentError(
      absl::StrCat("pull compression ", text, ": ", codec.status().message()));
}

// Returns what pushes go by, for errors.
std::string NameOf(const std::string& policy, const Codec& codec) {
  return policy == PolicySide::kThreshold ? absl::StrCat("codec ", codec.spec().name)
                                          : absl::StrCat("policy ", policy);
}

bool IsChange(const std::string& codec) { return PulledFormOf(codec) == PulledForm::kChange; }

// The value of pull_compression with which pulls carry what the policy has chosen for pushes.
constexpr char kPolicy[] = "policy";

// Refuses options of the threshold beside a policy that adapts, and the reverse.
absl::Status CheckWithPolicy(const CompressionPlanOptions& plan) {
  const auto refuse = [&](const char* option, const std::string& got, const char* expected) {
    return absl::InvalidArgumentError(
        absl::StrCat(option, "=", got, " with policy ", plan.policy, ": expected ", expected));
  };
  if (plan.policy == PolicySide::kThreshold) {
    if (!plan.pulls_follow_policy) return absl::OkStatus();
    return refuse("pull_compression", kPolicy, "a codec, or a policy that adapts");
  }
  constexpr char kDecides[] = "the default; the policy decides, and there is no threshold";
  if (plan.fixed_threshold_bytes.has_value()) {
    return refuse("threshold", absl::StrCat(*plan.fixed_threshold_bytes), kDecides);
  }
  if (plan.remeasure_every > 0) {
    return refuse("remeasure_every", absl::StrCat(plan.remeasure_every), kDecides);
  }
  if (plan.table.has_value() || plan.pull_table.has_value()) {
    return refuse("threshold_table", "FILE", kDecides);
  }
  if (plan.pull_compression != "none" && !plan.fixed_pull_threshold_bytes.has_value()) {
    return refuse("pull_threshold", "auto", "a number of bytes (0 compresses every pull)");
  }
  return absl::OkStatus();
}

bool SomeTakes(const std::vector<std::string>& specs, std::span<const int64_t> shape) {
  return std::ranges::any_of(specs, [&](const std::string& spec) {
    const auto codec = MakeCodec(spec);
    return spec != PlanSide::kRaw && codec.ok() && (*codec)->Takes(shape);
  });
}

// Returns what the tables behind the plan's decision have decided. A threshold that was given has
// no table.
std::vector<DecisionLine> DecisionLines(const CompressionPlan& plan) {
  std::vector<DecisionLine> lines;
  const wire::CodecMap map = plan.decision().value_or(wire::CodecMap());
  const auto add = [&](wire::Direction direction, const std::string& codec,
                       std::optional<uint64_t> threshold, const char* option) {
    const auto table = ThresholdTable::FromRows(codec, RowsOf(map.table(), direction));
    if (table.ok() && !table->empty())
      lines.push_back(SummarizeDecision(*table, threshold, option));
  };
  add(wire::PUSH, plan.options().compression, PushDecisionOf(map).threshold_bytes, "threshold");
  add(wire::PULL, plan.options().pull_compression, PullDecisionOf(map).threshold_bytes,
      "pull_threshold");
  return lines;
}

// Logs those lines that are not in `before`.
void LogDecision(const std::vector<DecisionLine>& lines, const std::vector<DecisionLine>& before) {
  for (const DecisionLine& line : lines) {
    if (std::ranges::find(before, line.text, &DecisionLine::text) != before.end()) continue;
    LOG_IF(INFO, !line.is_nearly_raw) << line.text;
    LOG_IF(WARNING, line.is_nearly_raw) << line.text;
  }
}

}  // namespace

absl::Status CodecChoice::Start() {
  const bool follows = options_.pull_compression == kPolicy;
  SLIMPS_ASSIGN_OR_RETURN(pull_codec_, MakePullCodec(follows ? "none" : options_.pull_compression));
  SLIMPS_RETURN_IF_ERROR(CheckCombination({.pull_codec = pull_codec_.get(),
                                           .mode = mode_,
                                           .staleness = options_.staleness,
                                           .remeasure_every = options_.remeasure_every}));
  return UseChosen({.codec = options_.compression,
                    .fixed_threshold_bytes = options_.fixed_threshold_bytes,
                    .policy = options_.policy},
                   /*pushes=*/nullptr);
}

absl::Status CodecChoice::Use(std::string_view codec_spec,
                              std::optional<uint64_t> fixed_threshold_bytes, PushPipeline* pushes) {
  return UseChosen({.codec = std::string(codec_spec),
                    .fixed_threshold_bytes = fixed_threshold_bytes,
                    .policy = chosen().policy},
                   pushes);
}

absl::Status CodecChoice::UsePolicy(std::string_view policy, PushPipeline* pushes) {
  Chosen chosen = this->chosen();
  chosen.policy = std::string(policy);
  return UseChosen(chosen, pushes);
}

CodecChoice::Chosen CodecChoice::chosen() const {
  MutexLock lock(&mutex_);
  return chosen_;
}

absl::StatusOr<CompressionPlanOptions> CodecChoice::PlanOptionsFor(const Chosen& chosen) const {
  const bool follows = options_.pull_compression == kPolicy;
  CompressionPlanOptions plan{
      .compression = chosen.codec,
      .fixed_threshold_bytes = chosen.fixed_threshold_bytes,
      .pre_steps = options_.pre_steps,
      .table = std::nullopt,
      .pull_compression = follows ? "none" : options_.pull_compression,
      .fixed_pull_threshold_bytes = options_.fixed_pull_threshold_bytes,
      .pull_table = std::nullopt,
      .remeasure_every = options_.remeasure_every,
      .policy = chosen.policy,
      .workers = options_.num_workers,
      .pulls_follow_policy = follows,
      .learning_rate = [this](uint64_t round) { return LearningRateOf(round); },
      .is_measured =
          [this](const TensorPlan& tensor) { return node_->servers().CrossesNetwork(tensor); }};
  if (!options_.threshold_table_file.empty()) {
    SLIMPS_ASSIGN_OR_RETURN(ThresholdTables tables,
                            LoadThresholdTables(options_.threshold_table_file));
    plan.table = std::move(tables.push);
    plan.pull_table = std::move(tables.pull);
  }
  SLIMPS_RETURN_IF_ERROR(CheckWithPolicy(plan));
  return plan;
}

absl::Status CodecChoice::UseChosen(const Chosen& chosen, PushPipeline* pushes) {
  SLIMPS_ASSIGN_OR_RETURN(const CompressionPlanOptions options, PlanOptionsFor(chosen));
  SLIMPS_ASSIGN_OR_RETURN(std::unique_ptr<CompressionPlan> made, CompressionPlan::Create(options));
  const Codec& codec = made->compressor();
  SLIMPS_RETURN_IF_ERROR(CheckTogether(codec, chosen.policy, optimizer()));
  if (options.pulls_follow_policy && made->takes_phases()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "pull_compression=", kPolicy, " with policy ", chosen.policy,
        ": expected codecs without phases; the workers exchange factors of their gradients, and no "
        "worker has a part in the change of the weights; give pull_compression=none"));
  }
  if (!keys_->empty()) SLIMPS_RETURN_IF_ERROR(made->BeginPolicy(keys_->InNameOrder()));
  MutexLock lock(&mutex_);
  // A Fail before this point shows here. A later one finds the new plan and fails it.
  SLIMPS_RETURN_IF_ERROR(failed_);
  const Codec* const before = plans_.empty() ? nullptr : &plans_.back()->compressor();
  const bool had_phases = before != nullptr && plans_.back()->takes_phases();
  if (!keys_->empty() && (made->takes_phases() || had_phases)) {
    return absl::FailedPreconditionError(absl::StrCat(
        had_phases ? NameOf(chosen_.policy, *before) : NameOf(chosen.policy, codec),
        ": the keys of its phases go with the tensors' own, at Init; "
        "set ",
        chosen.policy == PolicySide::kThreshold ? "gradient compression" : "the policy",
        " before Init"));
  }
  if (before != nullptr && !keys_->empty() && codec.combine() != before->combine()) {
    return absl::FailedPreconditionError(absl::StrCat(
        "codec ", codec.spec().name, " after codec ", before->spec().name,
        ": the servers join their gradients in different ways, which Init has fixed; set gradient "
        "compression before Init"));
  }
  plans_.push_back(std::move(made));
  chosen_ = chosen;
  if (pushes != nullptr) pushes->UsePlan(plans_.back().get());
  return absl::OkStatus();
}

std::string CodecChoice::PhasesName() const {
  return NameOf(chosen().policy, plan()->compressor());
}

absl::StatusOr<std::vector<std::vector<const Codec*>>> CodecChoice::PossibleCodecs(
    const std::vector<InitTensor>& tensors) const {
  CompressionPlan* const plan = this->plan();
  std::vector<std::vector<const Codec*>> codecs(tensors.size());
  for (size_t i = 0; i < tensors.size(); ++i) {
    if (!plan->adapts()) {
      codecs[i] = {&plan->compressor()};
    } else if (keys_->MaxPushedRounds() == 0) {  // later ones are sent raw
      SLIMPS_ASSIGN_OR_RETURN(codecs[i],
                              plan->ChoicesOf(TensorInfoOf(tensors[i].key, tensors[i].shape)));
    }
  }
  return codecs;
}

absl::Status CodecChoice::BeginPolicy(const std::vector<InitTensor>& tensors) {
  if (!plan()->adapts() || keys_->MaxPushedRounds() > 0) return absl::OkStatus();
  std::vector<TensorPlan> added;
  added.reserve(tensors.size());
  for (const InitTensor& tensor : tensors) {
    TensorPlan& made = added.emplace_back(TensorPlan{.key = tensor.key, .info = {}, .elements = 1});
    SLIMPS_ASSIGN_OR_RETURN(made.info, DeclarationOf(tensor));
    for (const int64_t extent : tensor.shape) made.elements *= static_cast<size_t>(extent);
  }
  std::vector<const TensorPlan*> all = keys_->InNameOrder();
  for (const TensorPlan& made : added) all.push_back(&made);
  return plan()->BeginPolicy(all);
}

absl::Status CodecChoice::ResumePolicy(const wire::SavedPolicy& saved, LevelProbe* probe) {
  const std::string policy = chosen().policy;
  if (!plan()->adapts() || saved.policy() != policy) {
    if (saved.policy().empty() && !plan()->adapts()) return absl::OkStatus();
    LOG(INFO) << "policy " << policy << " begins anew: the residuals were saved with policy "
              << (saved.policy().empty() ? PolicySide::kThreshold : saved.policy());
    return absl::OkStatus();
  }
  SLIMPS_RETURN_IF_ERROR(plan()->ResumePolicy(saved));
  return probe->Load(saved, keys_->InNameOrder(), plan());
}

absl::Status CodecChoice::CheckTakesSome() const {
  CompressionPlan* const plan = this->plan();
  CodecDecision decision;
  if (plan->adapts()) decision = PushDecisionOf(plan->decision().value_or(wire::CodecMap()));
  if (decision.version > 0) return absl::OkStatus();  // resumed: raw may be what was best
  const TensorPlan* largest = nullptr;
  for (const TensorPlan* tensor : keys_->InNameOrder()) {
    if (plan->adapts()) {
      const auto entry = decision.entries.find(tensor->key.id());
      if (entry == decision.entries.end()) continue;  // too small for the policy
      std::vector<std::string> specs = entry->second;
      SLIMPS_ASSIGN_OR_RETURN(const auto levels, plan->LevelsOf(*tensor));
      for (const PolicySide::Level& level : levels) specs.push_back(level.name);
      if (SomeTakes(specs, tensor->shape())) return absl::OkStatus();
    } else if (plan->compressor().Takes(tensor->shape())) {
      return absl::OkStatus();
    }
    if (tensor->shape().size() < 2) continue;
    if (largest == nullptr || tensor->elements > largest->elements) largest = tensor;
  }
  if (largest == nullptr) return absl::OkStatus();
  const auto rows = static_cast<size_t>(largest->shape()[0]);
  return absl::InvalidArgumentError(absl::StrCat(
      plan->adapts() ? absl::StrCat("policy ", chosen().policy)
                     : absl::StrCat("codec ", plan->compressor().spec().ToString()),
      " takes no tensor: even for the largest matrix, key ", largest->key.typed_name(), " with ",
      rows, " rows of ", largest->elements / rows,
      ", its factors have more than half of the numbers; expected a smaller rank (or s), another "
      "codec, or larger tensors, all of them initialised before the first push"));
}

absl::Status CodecChoice::OnCodecMap(const wire::CodecMap& map) {
  const size_t known = plan()->decisions().size();
  const bool tells = node_->rank() == 0;
  const auto before = tells ? DecisionLines(*plan()) : std::vector<DecisionLine>();
  SLIMPS_RETURN_IF_ERROR(plan()->OnCodecMap(map));
  if (tells) LogDecision(DecisionLines(*plan()), before);
  if (map.policy().empty() || plan()->decisions().size() == known) return absl::OkStatus();
  const SteadyTime now = TraceLog::Global().Now();
  TraceLog::Global().Add(TraceStage::kDecide, {map.reason(), 0, map.from_round()}, now, now);
  if (tells) {
    LOG(INFO) << "policy " << map.policy() << ", from round " << map.from_round() << ": "
              << map.reason();
  }
  return absl::OkStatus();
}

absl::Status CodecChoice::CheckTogether(const Codec& codec, const std::string& policy,
                                        const std::optional<wire::OptimizerSpec>& optimizer) const {
  return CheckCombination({.codec = &codec,
                           .pull_codec = pull_codec_.get(),
                           .policy = policy,
                           .mode = mode_,
                           .optimizer = optimizer});
}

absl::Status CodecChoice::CheckOptimizer(const wire::OptimizerSpec& spec) const {
  SLIMPS_RETURN_IF_ERROR(CheckTogether(plan()->compressor(), chosen().policy, spec));
  if (options_.pass_non_finite && spec.kind() != wire::OptimizerSpec::NONE) {
    return absl::InvalidArgumentError(absl::StrCat(
        "optimizer ", wire::OptimizerSpec::Kind_Name(spec.kind()),
        " in a store with non_finite=pass: expected none, a store that sums gradients; one push of "
        "NaN would spoil weights and moments for good"));
  }
  const bool momenta = spec.kind() == wire::OptimizerSpec::ONEBIT_ADAM;
  if (!momenta && momentum_.CoversAny()) {
    return absl::FailedPreconditionError(absl::StrCat(
        "optimizer ", wire::OptimizerSpec::Kind_Name(spec.kind()),
        ": expected ONEBIT_ADAM, whose variance is frozen; another one needs a new job"));
  }
  if (momenta && (plan()->IsProfiled(1) || options_.remeasure_every > 0)) {
    return absl::InvalidArgumentError(
        "optimizer onebit_adam: expected fixed thresholds for pushes and pulls, as 0, and "
        "remeasure_every=0; the pushes of its warm-up are not compressed, so nothing can be "
        "measured in them");
  }
  return absl::OkStatus();
}

void CodecChoice::UseOptimizer(const wire::OptimizerSpec& spec) {
  MutexLock lock(&mutex_);
  optimizer_ = spec;
}

std::optional<wire::OptimizerSpec> CodecChoice::optimizer() const {
  MutexLock lock(&mutex_);
  return optimizer_;
}

double CodecChoice::LearningRateOf(uint64_t round) const {
  if (const std::optional<double> set = keys_->HighestSetRate(); set.has_value()) return *set;
  const std::optional<wire::OptimizerSpec> spec = optimizer();
  if (!spec.has_value() || !ValidateSchedule(spec->schedule()).ok()) return 0;
  return LearningRateAt(spec->learning_rate(), spec->schedule(), std::max<uint64_t>(round, 1));
}

bool CodecChoice::compresses_momenta() const {
  MutexLock lock(&mutex_);
  return optimizer_.has_value() && optimizer_->kind() == wire::OptimizerSpec::ONEBIT_ADAM;
}

CompressionPlan* CodecChoice::plan() const {
  MutexLock lock(&mutex_);
  return plans_.back().get();
}

std::string CodecChoice::ChangeCodecFor(const TensorPlan& tensor, uint64_t version) const {
  // A tensor declared in half precision is pulled in that precision.
  if (version == 0 || tensor.info.dtype() != wire::FLOAT32) return "";
  return plan()->ChangeCodecFor(tensor, version);
}

bool CodecChoice::NeedsCopy(const TensorPlan& tensor, uint64_t version) const {
  if (compresses_momenta()) return true;
  if (mode_ != wire::DIST_SYNC) return false;
  // Rank 0's choice of a codec counts for a version, and this worker does not know it.
  if (options_.pull_compression == kPolicy) return true;
  if (!IsChange(options_.pull_compression)) return false;
  return IsChange(ChangeCodecFor(tensor, version)) || IsChange(ChangeCodecFor(tensor, version + 1));
}

std::string CodecChoice::Description() const {
  const Chosen chosen = this->chosen();
  const CompressionPlan& current = *plan();
  std::string push = chosen.policy == PolicySide::kThreshold
                         ? current.compressor().spec().ToString()
                         : absl::StrCat("policy ", chosen.policy);
  // Workers that go by different thresholds would wait for each other in a tensor's phases.
  if (const auto bytes = current.options().fixed_threshold_bytes;
      bytes.has_value() && current.compressor().phases() != nullptr) {
    absl::StrAppend(&push, " from ", *bytes, " bytes");
  }
  if (options_.pull_compression == kPolicy) return absl::StrCat(push, ", pulls too");
  if (pull_codec_->spec().name == "none") return push;
  return absl::StrCat(push, ", pulls ", pull_codec_->spec().ToString());
}

void CodecChoice::WarnOfCodec() {
  if (node_->rank() != 0) return;
  const auto is_new = [this](const std::string& text) {
    MutexLock lock(&mutex_);
    return !text.empty() && told_.insert(text).second;
  };
  const auto current = plan();
  const Codec& codec = current->compressor();
  for (const std::string& warning :
       {codec.Warning(), WarningOf({.codec = &codec, .optimizer = optimizer()})}) {
    if (is_new(warning)) LOG(WARNING) << warning;
  }
  std::vector<DecisionLine> lines = DecisionLines(*current);
  std::erase_if(lines, [&](const DecisionLine& line) { return !is_new(line.text); });
  LogDecision(lines, /*before=*/{});
  const std::string measuring = absl::StrCat(
      "measuring up to step ", current->options().pre_steps,
      " from which size on compressing tensors saves time: of at most six sizes, a few tensors "
      "travel raw in every other step, with at most five steps' worth of raw bytes each way; the "
      "other tensors are compressed");
  if (current->IsProfiled(1) && is_new(measuring)) LOG(INFO) << measuring;
}

void CodecChoice::WarnOfDifference(const std::string& difference) {
  {
    MutexLock lock(&mutex_);
    if (difference.empty() || std::exchange(told_difference_, difference) == difference) return;
  }
  LOG(WARNING) << "workers compress in different ways: " << difference
               << " (if that is a mistake, give all of them the same compression)";
}

void CodecChoice::Fail(const absl::Status& why) {
  {
    MutexLock lock(&mutex_);
    if (failed_.ok()) failed_ = why;
  }
  plan()->Fail(why);
}

}  // namespace slimps
