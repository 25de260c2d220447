// SPDX-License-Identifier: Apache-2.0
// TensorTraffic's calls for memory that their caller lends, on GPUs and on the host.
#include <algorithm>
#include <cmath>
#include <memory>
#include <optional>
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
    sources.push_back({device, lent.values, lent.place});
  }
  if (tensor == nullptr) return CheckDevices(key, {});
  SLIMPS_ASSIGN_OR_RETURN(GradientBuffers grad_bufs,
                          staging_.Acquire(*tensor, sources[0].device, options_.timeout));
  const auto arrival = std::make_shared<Arrival>();
  arrival->start = options_.clock->Now();
  arrival->grad_bufs = grad_bufs;
  arrival->lent = std::move(gradients);
  SLIMPS_ASSIGN_OR_RETURN(arrival->job, CountJob(tensor, priority));
  // From here on the round is counted.
  absl::Status started;
  if (!phases_.Has(*tensor)) {
    absl::StatusOr<PushPipeline::Announced> place = push_.Announce(arrival->job);
    started = place.status();
    if (place.ok()) arrival->place = *std::move(place);
  }
  arrival->whole = !arrival->place.has_value() || arrival->place->measured ||
                   mode_ != wire::DIST_SYNC;  // as TakesLoans
  const auto arrived = [this, arrival](size_t partition, const absl::StatusOr<float>& largest) {
    OrTell(node_->on_out_of_memory(), [&] { TakeArrived(arrival.get(), partition, largest); });
  };
  const auto ended = [this, arrival] {
    OrTell(node_->on_out_of_memory(), [&] { EndArrival(arrival.get()); });
  };
  if (started.ok()) {
    started = arriving_.Start(*tensor, sources, grad_bufs, {.arrived = arrived, .ended = ended});
  }
  if (!started.ok()) node_->Fail(started, WorkerNode::Cause::kOurs);
  return started;
}

void TensorTraffic::TakeArrived(Arrival* arrival, size_t partition,
                                const absl::StatusOr<float>& largest) {
  const TensorPlan& tensor = *arrival->job.tensor;
  absl::Status arrived =
      Prefixed(largest.status(), absl::StrCat("push of key ", tensor.key.typed_name()));
  if (arrived.ok() && !MayPush(tensor, *largest)) {
    arrived = CheckArrived(tensor, partition, arrival->grad_bufs[partition]->floats(),
                           "the store has failed");
  }
  {
    MutexLock lock(&arrival->mutex);
    arrival->status.Update(arrived);
    if (largest.ok()) arrival->largest = std::max(arrival->largest, *largest);
  }
  // The round is counted: it cannot be complete without this gradient.
  if (!arrived.ok()) return node_->Fail(arrived, WorkerNode::Cause::kOurs);
  if (arrival->whole) return;
  push_.Arrive(*arrival->place, partition, std::move(arrival->grad_bufs[partition]), *largest);
}

void TensorTraffic::EndArrival(Arrival* arrival) {
  absl::Status status;
  {
    MutexLock lock(&arrival->mutex);
    status = arrival->status;
    arrival->job.gradient_bound = arrival->largest;
  }
  for (const LentGradient& lent : arrival->lent) {
    if (lent.returned) lent.returned(status);
  }
  if (!status.ok()) return;
  NoteCopied(arrival->job, arrival->start);
  if (!arrival->whole) return;
  if (arrival->place.has_value()) {
    return push_.ArriveWhole(*arrival->place, std::move(arrival->grad_bufs),
                             arrival->job.gradient_bound);
  }
  arrival->job.grad_bufs = std::move(arrival->grad_bufs);
  (void)Submit(std::move(arrival->job));  // an error fails the store
}

absl::Status TensorTraffic::PushOfHost(const Key& key, LentGradient lent, int priority) {
  SLIMPS_ASSIGN_OR_RETURN(const TensorPlan* tensor, FindForPush(key, lent.values.size()));
  if (!TakesLoans(*tensor, lent)) {
    SLIMPS_RETURN_IF_ERROR(Push(key, lent.values, priority));
    if (lent.returned) lent.returned(absl::OkStatus());
    return absl::OkStatus();
  }
  SLIMPS_ASSIGN_OR_RETURN(PushJob job, CountJob(tensor, priority));
  const auto loan = std::make_shared<GradientLoan>(lent);
  job.grad_bufs = LendPartitions(*tensor, loan);
  job.loan = loan;
  SLIMPS_RETURN_IF_ERROR(Submit(std::move(job)));
  loan->Accept(std::move(lent.returned));
  return absl::OkStatus();
}

bool TensorTraffic::TakesLoans(const TensorPlan& tensor, const LentGradient& lent) const {
  // Each partition is checked for NaN when it is its turn. Servers without rounds would have
  // applied those before.
  if (mode_ != wire::DIST_SYNC) return false;
  // Phases read a gradient more than once.
  if (phases_.Has(tensor)) return false;
  const CompressionPlan& plan = *codecs_->plan();
  if (plan.adapts() || plan.compressor().format() != PayloadFormat::kRawF32) return true;
  // All travels raw. What lies in memory that other processes can read needs no further copy.
  return lent.until_acknowledged && !HasPayloadMemory();
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
