// SPDX-License-Identifier: Apache-2.0
#include "worker/push/push_encoder.h"

#include <algorithm>
#include <cmath>
#include <span>
#include <utility>

#include "compress/kernels/kernels.h"
#include "proto/base/status_macros.h"
#include "worker/tensor/value_check.h"

namespace slimps {

PushEncoder::PushEncoder(CompressionPlan* plan, PushEncoderOptions options)
    : options_(std::move(options)),
      plan_(plan, options_.plan),
      items_(options_.items),
      probe_(options_.items.payloads, options_.items.clock) {}

absl::StatusOr<const Codec*> PushEncoder::Choose(EncodeWork* work) {
  const uint64_t round = work->job->round;
  // A measured tensor awaits them itself, once it is encoded, and no report falls into its rounds.
  if (!work->whole_tensor) {
    // Pulls of the round before may still be measured: the servers answer with a version's change
    // only until they make the next version.
    if (options_.await_measured_pulls && round > 1 && plan_->IsMeasured(round - 1)) {
      options_.await_measured_pulls();
    }
    plan_.SendReport(round);
  }
  const bool shows = plan_->adapts() && !work->whole_tensor;
  if (shows) {
    SLIMPS_RETURN_IF_ERROR(CheckLent(work));
    SLIMPS_RETURN_IF_ERROR(SendPolicyReport(*work->job));
  }
  SLIMPS_ASSIGN_OR_RETURN(const Codec* codec, plan_.AwaitCodec(*work->job->tensor, round));
  if (shows && !work->grad_bufs.empty()) {
    SLIMPS_RETURN_IF_ERROR(
        Show(*work->job, work->partition, work->grad_bufs[0], work->gradient_bound()));
  }
  return codec;
}

absl::Status PushEncoder::Look(const PushJob& job) {
  absl::Status seen = SendPolicyReport(job);
  for (size_t i = 0; i < job.grad_bufs.size() && seen.ok(); ++i) {
    seen = Show(job, i, job.grad_bufs[i], job.gradient_bound);
  }
  return seen;
}

absl::Status PushEncoder::SendPolicyReport(const PushJob& job) {
  return plan_.SendPolicyReport(job.round, job.submitted, &probe_, options_.take_link);
}

absl::Status PushEncoder::Show(const PushJob& job, size_t partition,
                               const std::shared_ptr<HostBuffer>& grad_buf, float gradient_bound) {
  CodecState* const state = states().Find(job.tensor->key.id(), static_cast<uint32_t>(partition));
  const GradientPart part{.tensor = job.tensor,
                          .partition = partition,
                          .round = job.round,
                          .grad_buf = grad_buf,
                          .gradient_bound = gradient_bound,
                          .submitted = job.submitted};
  const std::span<const float> residual =
      state == nullptr ? std::span<const float>() : state->residual();
  return probe_.See(part, residual, plan_.get());
}

absl::StatusOr<PreparedPush> PushEncoder::Make(EncodeWork* work, size_t index, const Codec& codec) {
  SLIMPS_RETURN_IF_ERROR(CheckLent(work));
  std::shared_ptr<HostBuffer> grad_buf;
  if (!work->grad_bufs.empty()) grad_buf = std::move(work->grad_bufs[index]);
  return items_.Make(*work->job, work->partition + index, std::move(grad_buf),
                     work->gradient_bound(), codec, plan_->compressor());
}

absl::Status PushEncoder::CheckLent(EncodeWork* work) const {
  if (work->job->loan == nullptr || work->checked_bound.has_value()) return absl::OkStatus();
  const TensorPlan& tensor = *work->job->tensor;
  const float scale = options_.items.payloads.grad_scale;
  float bound = 0;
  for (size_t i = 0; i < work->grad_bufs.size(); ++i) {
    const std::span<const float> values = work->grad_bufs[i]->floats();
    const float largest = BestKernels().raw.largest(values.data(), values.size());
    if (std::isinf(largest * scale) && !options_.items.payloads.pass_non_finite) {
      return CheckFinite(tensor.key, values, scale, "push",
                         tensor.partitions[work->partition + i].offset, "the store has failed");
    }
    bound = std::max(bound, largest);
  }
  work->checked_bound = bound;
  return absl::OkStatus();
}

}  // namespace slimps
