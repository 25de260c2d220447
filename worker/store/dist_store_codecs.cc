// SPDX-License-Identifier: Apache-2.0
// DistStore: which codec carries what, and who is told.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "compress/codec/catalogue/dictionary.h"
#include "compress/policy/threshold_table_file.h"
#include "glog/logging.h"
#include "proto/base/status_macros.h"
#include "worker/combination.h"
#include "worker/store/dist_store.h"

namespace slimps {

bool DistStore::CrossesNetwork(const TensorPlan& tensor) const {
  const auto here = [this](uint32_t server) { return bool{is_here_[server]}; };
  return std::all_of(is_here_.begin(), is_here_.end(), [](bool one) { return one; }) ||
         std::any_of(tensor.partitions.begin(), tensor.partitions.end(),
                     [&](const PartitionPlan& partition) { return !here(partition.server); });
}

absl::Status DistStore::MakePlan(std::string_view codec_spec,
                                 std::optional<uint64_t> fixed_threshold_bytes) {
  CompressionPlanOptions plan{
      .compression = std::string(codec_spec),
      .fixed_threshold_bytes = fixed_threshold_bytes,
      .pre_steps = options_.pre_steps,
      .table = std::nullopt,
      .pull_compression = options_.pull_compression,
      .fixed_pull_threshold_bytes = options_.fixed_pull_threshold_bytes,
      .pull_table = std::nullopt,
      .remeasure_every = options_.remeasure_every,
      .is_measured = [this](const TensorPlan& tensor) { return CrossesNetwork(tensor); }};
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
  SLIMPS_RETURN_IF_ERROR(first_error_);
  if (!plans_.empty() && !keys_.empty() &&
      codec.combine() != plans_.back()->compressor().combine()) {
    return absl::FailedPreconditionError(absl::StrCat(
        "codec ", codec.spec().name, " after codec ", plans_.back()->compressor().spec().name,
        ": the servers join their gradients in different ways, which Init has fixed; set gradient "
        "compression before Init"));
  }
  plans_.push_back(std::move(made));
  if (push_ != nullptr) push_->UsePlan(plans_.back().get());
  return absl::OkStatus();
}

void DistStore::WarnOfCodec() const {
  const std::string warning = plan()->compressor().Warning();
  if (rank() == 0 && !warning.empty()) LOG(WARNING) << warning;
}

std::string DistStore::DescribeCompression() const {
  const std::string push = plan()->compressor().spec().ToString();
  if (pull_codec_->spec().name == "none") return push;
  return absl::StrCat(push, ", pulls ", pull_codec_->spec().ToString());
}

void DistStore::WarnOfDifference(const std::string& difference) {
  {
    MutexLock lock(&mutex_);
    if (difference.empty() || std::exchange(told_difference_, difference) == difference) return;
  }
  LOG(WARNING) << "workers compress in different ways: " << difference
               << " (if that is a mistake, give all of them the same compression)";
}

absl::Status DistStore::CheckTogether(const Codec& codec,
                                      const std::optional<wire::OptimizerSpec>& optimizer) const {
  return CheckCombination(
      {.codec = &codec, .pull_codec = pull_codec_.get(), .mode = mode_, .optimizer = optimizer});
}

std::string DistStore::ChangeCodecFor(const TensorPlan& tensor, uint64_t version) const {
  // A tensor declared in half precision is pulled in that precision.
  if (version == 0 || tensor.info.dtype() != wire::FLOAT32) return "";
  return plan()->ChangeCodecFor(tensor, version);
}

void DistStore::ReportThresholds(wire::ThresholdReport report) {
  Message message{.header = membership_.MakeHeader(), .payloads = {}};
  *message.header.mutable_threshold_report() = std::move(report);
  const absl::Status sent = transport_->Send(membership_.scheduler(), std::move(message));
  if (!sent.ok()) Fail(sent, Cause::kOurs);
}

absl::Status DistStore::SetGradientCompression(std::string_view codec_spec) {
  return ChangeCompression(codec_spec, options_.fixed_threshold_bytes);
}

absl::Status DistStore::SetGradientCompression(
    const std::map<std::string, std::string>& dictionary) {
  SLIMPS_ASSIGN_OR_RETURN(const DictionaryCodec codec, CodecSpecFromDictionary(dictionary));
  return ChangeCompression(codec.spec.ToString(),
                           codec.every_key ? 0 : options_.fixed_threshold_bytes);
}

absl::Status DistStore::ChangeCompression(std::string_view codec_spec,
                                          std::optional<uint64_t> fixed_threshold_bytes) {
  SLIMPS_RETURN_IF_ERROR(FirstError());
  if (keys_.MaxPushedRounds() > 0) {
    return absl::FailedPreconditionError("gradient compression must be set before the first push");
  }
  const std::optional<wire::OptimizerSpec> set = optimizer();
  const double before = DecayFactor(plan()->compressor(), set);
  SLIMPS_RETURN_IF_ERROR(MakePlan(codec_spec, fixed_threshold_bytes));
  WarnOfCodec();
  if (!set.has_value() || DecayFactor(plan()->compressor(), set) == before) return absl::OkStatus();
  return SetOptimizer(*set);  // the servers must now use another weight decay
}

}  // namespace slimps
