// SPDX-License-Identifier: Apache-2.0
#include "worker/store/codec_choice.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "compress/policy/threshold_table_file.h"
#include "glog/logging.h"
#include "proto/base/status_macros.h"
#include "worker/combination.h"
#include "worker/pull/pulled_form.h"

namespace slimps {
namespace {

absl::StatusOr<std::unique_ptr<const Codec>> MakePullCodec(const std::string& text) {
  absl::StatusOr<std::unique_ptr<Codec>> codec = MakeCodec(text);
  if (codec.ok()) return *std::move(codec);
  return absl::InvalidArgumentError(
      absl::StrCat("pull compression ", text, ": ", codec.status().message()));
}

bool IsChange(const std::string& codec) { return PulledFormOf(codec) == PulledForm::kChange; }

}  // namespace

absl::Status CodecChoice::Start() {
  SLIMPS_ASSIGN_OR_RETURN(pull_codec_, MakePullCodec(options_.pull_compression));
  SLIMPS_RETURN_IF_ERROR(CheckCombination({.pull_codec = pull_codec_.get(), .mode = mode_}));
  return Use(options_.compression, options_.fixed_threshold_bytes, /*pushes=*/nullptr);
}

absl::Status CodecChoice::Use(std::string_view codec_spec,
                              std::optional<uint64_t> fixed_threshold_bytes, PushPipeline* pushes) {
  CompressionPlanOptions plan{
      .compression = std::string(codec_spec),
      .fixed_threshold_bytes = fixed_threshold_bytes,
      .pre_steps = options_.pre_steps,
      .table = std::nullopt,
      .pull_compression = options_.pull_compression,
      .fixed_pull_threshold_bytes = options_.fixed_pull_threshold_bytes,
      .pull_table = std::nullopt,
      .remeasure_every = options_.remeasure_every,
      .is_measured = [this](const TensorPlan& tensor) { return node_->CrossesNetwork(tensor); }};
  if (plan.remeasure_every > 0 && mode_ != wire::DIST_SYNC) {
    return absl::InvalidArgumentError(absl::StrCat(
        "remeasure_every=", plan.remeasure_every, ": expected 0 with ", StoreModeName(mode_),
        ": its workers have no rounds in common from which a new threshold could hold"));
  }
  if (!options_.threshold_table_file.empty()) {
    SLIMPS_ASSIGN_OR_RETURN(ThresholdTables tables,
                            LoadThresholdTables(options_.threshold_table_file));
    plan.table = std::move(tables.push);
    plan.pull_table = std::move(tables.pull);
  }
  SLIMPS_ASSIGN_OR_RETURN(std::unique_ptr<CompressionPlan> made, CompressionPlan::Create(plan));
  const Codec& codec = made->compressor();
  SLIMPS_RETURN_IF_ERROR(CheckTogether(codec, optimizer()));
  MutexLock lock(&mutex_);
  // A Fail before this point shows here. A later one finds the new plan and fails it.
  SLIMPS_RETURN_IF_ERROR(failed_);
  const Codec* const before = plans_.empty() ? nullptr : &plans_.back()->compressor();
  const bool had_phases = before != nullptr && before->phases() != nullptr;
  if (!keys_->empty() && (codec.phases() != nullptr || had_phases)) {
    return absl::FailedPreconditionError(
        absl::StrCat("codec ", (had_phases ? *before : codec).spec().name,
                     ": the keys of its phases go with the tensors' own, at Init; "
                     "set gradient compression before Init"));
  }
  if (before != nullptr && !keys_->empty() && codec.combine() != before->combine()) {
    return absl::FailedPreconditionError(absl::StrCat(
        "codec ", codec.spec().name, " after codec ", before->spec().name,
        ": the servers join their gradients in different ways, which Init has fixed; set gradient "
        "compression before Init"));
  }
  plans_.push_back(std::move(made));
  if (pushes != nullptr) pushes->UsePlan(plans_.back().get());
  return absl::OkStatus();
}

absl::Status CodecChoice::CheckTogether(const Codec& codec,
                                        const std::optional<wire::OptimizerSpec>& optimizer) const {
  return CheckCombination(
      {.codec = &codec, .pull_codec = pull_codec_.get(), .mode = mode_, .optimizer = optimizer});
}

absl::Status CodecChoice::SetOptimizer(const wire::OptimizerSpec& spec) {
  SLIMPS_RETURN_IF_ERROR(CheckTogether(plan()->compressor(), spec));
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
  MutexLock lock(&mutex_);
  optimizer_ = spec;
  return absl::OkStatus();
}

std::optional<wire::OptimizerSpec> CodecChoice::optimizer() const {
  MutexLock lock(&mutex_);
  return optimizer_;
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
  if (mode_ != wire::DIST_SYNC || !IsChange(options_.pull_compression)) return false;
  return IsChange(ChangeCodecFor(tensor, version)) || IsChange(ChangeCodecFor(tensor, version + 1));
}

std::string CodecChoice::Description() const {
  const CompressionPlan& current = *plan();
  std::string push = current.compressor().spec().ToString();
  // Workers that go by different thresholds would wait for each other in a tensor's phases.
  if (const auto bytes = current.options().fixed_threshold_bytes;
      bytes.has_value() && current.compressor().phases() != nullptr) {
    absl::StrAppend(&push, " from ", *bytes, " bytes");
  }
  if (pull_codec_->spec().name == "none") return push;
  return absl::StrCat(push, ", pulls ", pull_codec_->spec().ToString());
}

void CodecChoice::WarnOfCodec() const {
  const std::string warning = plan()->compressor().Warning();
  if (node_->rank() == 0 && !warning.empty()) LOG(WARNING) << warning;
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
