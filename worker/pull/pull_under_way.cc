// SPDX-License-Identifier: Apache-2.0
#include "worker/pull/pull_under_way.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "proto/base/out_of_memory.h"
#include "proto/base/status_copy.h"
#include "proto/base/trace/trace.h"

namespace slimps {

absl::Status PullUnderWay::UseMemory(HeldWeights* kept) {
  held = kept;
  switch (job.kind) {
    case PullKind::kPlain:
      held = &callers.emplace(job.tensor);
      held->UseMemory(job.out);
      break;
    case PullKind::kOnto:
      held->UseMemory(job.out);
      break;
    case PullKind::kThroughCopy: {
      const auto make_copy = [this] {
        held->UseOwnMemory();
        return absl::OkStatus();
      };
      return OrOutOfMemory(make_copy, "pull", job.tensor->key.typed_name());
    }
  }
  return absl::OkStatus();
}

bool PullUnderWay::IsHeld() const {
  if (job.kind == PullKind::kPlain || !job.is_newest) return false;
  for (size_t i = 0; i < job.tensor->partitions.size(); ++i) {
    if (held->version(i) != job.min_version) return false;
  }
  return true;
}

void PullUnderWay::NoteHeld() {
  for (size_t i = 0; i < job.tensor->partitions.size(); ++i) asked_with.push_back(held->version(i));
}

wire::PullItem PullUnderWay::Request(size_t partition, absl::Duration timeout) const {
  const std::optional<uint64_t> version = asked_with[partition];
  wire::PullItem pull;
  pull.mutable_id()->set_key(job.tensor->key.id());
  pull.mutable_id()->set_partition(static_cast<uint32_t>(partition));
  pull.set_min_version(job.min_version);
  pull.set_newest(!job.is_newest);
  pull.set_timeout_ms(HoldMs(timeout));
  pull.set_priority(job.priority);
  pull.set_elements(job.tensor->partitions[partition].elements);
  pull.set_takes_change(version.has_value());
  pull.set_held_version(version.value_or(0));
  return pull;
}

absl::Status PullUnderWay::Merge(size_t partition, const Answer& answer, SharedMomentum* momentum) {
  const TensorPlan& tensor = *job.tensor;
  const auto where = [&] {
    return absl::StrCat("pull of key ", tensor.key.typed_name(), " partition ", partition,
                        " from server ", tensor.partitions[partition].server);
  };
  if (answer.pull.version() < job.min_version) {
    return absl::FailedPreconditionError(absl::StrCat(
        where(), ": expected version ", job.min_version, ", got ", answer.pull.version()));
  }
  const TraceSpan span(
      TraceStage::kDecode,
      {tensor.key.typed_name(), static_cast<uint32_t>(partition), answer.pull.version()});
  const absl::Status merged = held->Merge(partition, answer.pull, answer.payload.bytes(), momentum);
  if (merged.ok()) return merged;
  return Prefixed(merged, where());
}

}  // namespace slimps
