// SPDX-License-Identifier: Apache-2.0
// TensorTraffic's calls for memory that their caller lends, on GPUs and on the host.
#include <cmath>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/base/buffer.h"
#include "proto/base/out_of_memory.h"
#include "proto/base/status_copy.h"
#include "proto/base/status_macros.h"
#include "worker/push/lent_gradient.h"
#include "worker/store/tensor_traffic.h"
#include "worker/tensor/value_check.h"

namespace slimps {

absl::StatusOr<Device*> TensorTraffic::FindDevice(const Key& key, std::span<const float> values,
                                                  const Place& place, const char* what) {
  absl::StatusOr<Device*> found = devices_.Find(values, place);
  if (found.ok()) return found;
  return Prefixed(found.status(), absl::StrCat(what, " of key ", key.typed_name()));
}

absl::Status TensorTraffic::PushLent(const Key& key, std::vector<LentGradient> gradients,
                                     int priority) {
  if (gradients.size() == 1 && gradients[0].place.on_host()) {
    return PushOfHost(key, std::move(gradients[0]), priority);
  }
  std::vector<ArrivingGradients::Source> sources;
  const TensorPlan* tensor = nullptr;
  for (const LentGradient& lent : gradients) {
    SLIMPS_ASSIGN_OR_RETURN(tensor, FindForPush(key, lent.values.size()));
    SLIMPS_ASSIGN_OR_RETURN(Device* const device, FindDevice(key, lent.values, lent.place, "push"));
    sources.push_back({device, lent.values, lent.place.stream});
  }
  if (tensor == nullptr) return CheckDevices(key, {});
  SLIMPS_ASSIGN_OR_RETURN(GradientBuffers grad_bufs,
                          staging_.Acquire(*tensor, sources[0].device, options_.timeout));
  const SteadyTime start = options_.clock->Now();
  SLIMPS_ASSIGN_OR_RETURN(PushJob counted, CountJob(tensor, priority));
  const auto job = std::make_shared<PushJob>(std::move(counted));
  job->grad_bufs = grad_bufs;
  const auto arrived = [this, job, start, gradients](const absl::StatusOr<float>& largest) {
    OrTell(node_->on_out_of_memory(), [&] {
      const absl::Status taken = TakeArrived(job.get(), largest, start);
      for (const LentGradient& lent : gradients) {
        if (lent.returned) lent.returned(taken);
      }
      if (taken.ok()) (void)Submit(std::move(*job));  // an error fails the store
    });
  };
  const absl::Status started = arriving_.Start(*tensor, sources, grad_bufs, arrived);
  // The round is counted.
  if (!started.ok()) node_->Fail(started, WorkerNode::Cause::kOurs);
  return started;
}

absl::Status TensorTraffic::PushOfHost(const Key& key, LentGradient lent, int priority) {
  SLIMPS_ASSIGN_OR_RETURN(const TensorPlan* tensor, FindForPush(key, lent.values.size()));
  const CompressionPlan& plan = *codecs_->plan();
  const bool is_encoded = plan.adapts() || plan.compressor().format() != PayloadFormat::kRawF32;
  // Raw payloads of memory that other processes can read need no further copy.
  const bool is_sent_in_place = lent.until_acknowledged && !HasPayloadMemory();
  // Phases read a gradient more than once. What will be copied anyway is copied by this thread.
  if (phases_.Has(*tensor) || !(is_encoded || is_sent_in_place)) {
    SLIMPS_RETURN_IF_ERROR(Push(key, lent.values, priority));
    if (lent.returned) lent.returned(absl::OkStatus());
    return absl::OkStatus();
  }
  SLIMPS_ASSIGN_OR_RETURN(PushJob job, CountJob(tensor, priority));
  const auto loan = std::make_shared<GradientLoan>(std::move(lent));
  job.grad_bufs = LendPartitions(*tensor, loan);
  job.loan = loan;
  const absl::Status submitted = Submit(std::move(job));
  if (!submitted.ok()) loan->Refuse();
  return submitted;
}

absl::Status TensorTraffic::TakeArrived(PushJob* job, const absl::StatusOr<float>& largest,
                                        SteadyTime start) {
  absl::Status arrived =
      Prefixed(largest.status(), absl::StrCat("push of key ", job->tensor->key.typed_name()));
  if (arrived.ok()) {
    NoteCopied(*job, start);
    job->gradient_bound = *largest;
    if (std::isinf(*largest * options_.grad_scale))
      arrived = CheckArrived(*job->tensor, job->grad_bufs);
  }
  // The round is counted: it cannot be complete without this gradient.
  if (!arrived.ok()) node_->Fail(arrived, WorkerNode::Cause::kOurs);
  return arrived;
}

void TensorTraffic::PullTo(const Key& key, LentTarget out, int priority) {
  const absl::StatusOr<Device*> device = FindDevice(key, out.values, out.place, "pull");
  if (!device.ok()) return out.done(device.status());
  if (out.place.on_host()) {
    return SubmitPull(key, {.priority = priority, .out = out.values, .done = std::move(out.done)});
  }
  absl::StatusOr<std::unique_ptr<HostBuffer>> buffer = (*device)->AllocateHost(out.values.size());
  const std::string pull = absl::StrCat("pull of key ", key.typed_name());
  if (!buffer.ok()) return out.done(Prefixed(buffer.status(), pull));
  const std::shared_ptr<HostBuffer> pulled = *std::move(buffer);
  const auto done = [device = *device, id = key.id(), pull, pulled,
                     out](const absl::Status& status) {
    if (!status.ok()) return out.done(status);
    device->CopyToDevice(id, pulled->floats(), out.values, out.place.stream,
                         [pull, pulled, out](KeyId, const absl::Status& copied) {
                           out.done(Prefixed(copied, pull));
                         });
  };
  SubmitPull(key, {.priority = priority, .out = pulled->floats(), .done = done});
}

}  // namespace slimps
