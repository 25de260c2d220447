// SPDX-License-Identifier: Apache-2.0
#include "worker/pull/held_weights.h"

#include "absl/strings/str_cat.h"
#include "compress/format/format.h"
#include "proto/base/status_macros.h"

namespace slimps {

void HeldWeights::UseMemory(std::span<float> memory) {
  if (memory.data() == memory_.data() && memory.size() == memory_.size()) return;
  memory_ = memory;
  ForgetVersions();
}

void HeldWeights::UseOwnMemory() {
  if (own_.size() == 0) own_ = AlignedBuffer::OfFloats(tensor_->elements);
  UseMemory(own_.floats());
}

absl::Status HeldWeights::Merge(size_t partition, const wire::PullReplyItem& answer,
                                std::span<const std::byte> payload, SharedMomentum* momentum) {
  const PartitionPlan& plan = tensor_->partitions[partition];
  std::optional<uint64_t>& version = versions_[partition];
  if (answer.elements() != plan.elements) {
    return absl::DataLossError(
        absl::StrCat("expected ", plan.elements, " elements, got ", answer.elements()));
  }
  const auto format = static_cast<PayloadFormat>(answer.format());
  SLIMPS_RETURN_IF_ERROR(ValidatePayload(format, payload, plan.elements));
  const std::span<float> values = memory_.subspan(plan.offset, plan.elements);
  if (!answer.is_change()) {
    Decode(format, payload, plan.elements, 0, values);
    version = answer.version();
    return absl::OkStatus();
  }
  if (version != answer.base_version() || answer.version() <= answer.base_version()) {
    return absl::FailedPreconditionError(absl::StrCat(
        "expected weights, or a change from ",
        version.has_value() ? absl::StrCat("version ", *version) : "no version, none being held",
        "; got a change from version ", answer.base_version(), " to ", answer.version()));
  }
  if (answer.has_momentum()) {
    if (momentum == nullptr) {
      return absl::FailedPreconditionError("expected weights or their change, got a momentum");
    }
    SLIMPS_RETURN_IF_ERROR(momentum->Step(*tensor_, partition, answer, payload, values));
    version = answer.version();
    return absl::OkStatus();
  }
  // In the same blocks as the server adds it to what it holds, so that the bits agree.
  for (size_t first = 0; first < values.size(); first += kBlockElements) {
    const size_t length = std::min(kBlockElements, values.size() - first);
    DecodeAdd(format, payload, plan.elements, first, values.subspan(first, length));
  }
  version = answer.version();
  return absl::OkStatus();
}

}  // namespace slimps
