// SPDX-License-Identifier: Apache-2.0
#include "worker/tensor/shared_momentum.h"

#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"
#include "compress/format/format.h"
#include "compress/kernels/frozen_variance.h"
#include "compress/kernels/kernels.h"
#include "compress/kernels/update_plan.h"
#include "proto/base/status_macros.h"

namespace slimps {
namespace {

std::string Where(const TensorPlan& tensor, size_t partition) {
  return absl::StrCat("momentum of key ", tensor.key.typed_name(), " partition ", partition, ": ");
}

// In the same blocks as the server decodes it, so that the bits agree.
void DecodeAll(PayloadFormat format, std::span<const std::byte> payload, std::span<float> values) {
  for (size_t first = 0; first < values.size(); first += kBlockElements) {
    const size_t length = std::min(kBlockElements, values.size() - first);
    Decode(format, payload, values.size(), first, values.subspan(first, length));
  }
}

}  // namespace

SharedMomentum::Part* SharedMomentum::Find(const TensorPlan& tensor, size_t partition) const {
  MutexLock lock(&mutex_);
  const auto found = parts_.find({tensor.key.id(), partition});
  return found == parts_.end() ? nullptr : found->second.get();
}

SharedMomentum::Part* SharedMomentum::FindOrAdd(const TensorPlan& tensor, size_t partition) {
  MutexLock lock(&mutex_);
  std::unique_ptr<Part>& part = parts_[{tensor.key.id(), partition}];
  if (part == nullptr) part = std::make_unique<Part>();
  return part.get();
}

bool SharedMomentum::CoversAny() const {
  MutexLock lock(&mutex_);
  return !parts_.empty();
}

bool SharedMomentum::Covers(const TensorPlan& tensor, size_t partition) const {
  return Find(tensor, partition) != nullptr;
}

bool SharedMomentum::Lacks(const TensorPlan& tensor, size_t partition,
                           const wire::PullReplyItem& answer) const {
  if (!answer.has_momentum() || answer.is_change()) return false;
  Part* const part = Find(tensor, partition);
  if (part == nullptr) return true;
  MutexLock lock(&part->mutex);
  return part->version != answer.version() || part->variance.size() == 0;
}

absl::Status SharedMomentum::Put(const TensorPlan& tensor, size_t partition,
                                 const wire::PullReplyItem& answer,
                                 std::span<const std::byte> payload) {
  const size_t elements = tensor.partitions[partition].elements;
  if (!answer.has_momentum() || !answer.has_state()) {
    return absl::FailedPreconditionError(
        absl::StrCat(Where(tensor, partition), "expected the state of a frozen variance, got ",
                     wire::OptimizerSpec::Kind_Name(answer.state().kind())));
  }
  const auto format = static_cast<PayloadFormat>(answer.format());
  const uint32_t number = answer.state().tensor();
  if (format != PayloadFormat::kRawF32 || (number != 1 && number != 2)) {
    return absl::InvalidArgumentError(
        absl::StrCat(Where(tensor, partition), "expected state tensor 1 or 2 in RAW_F32, got ",
                     number, " in ", wire::Format_Name(answer.format())));
  }
  SLIMPS_RETURN_IF_ERROR(ValidatePayload(format, payload, elements));
  AlignedBuffer values = AlignedBuffer::OfFloats(elements);
  DecodeAll(format, payload, values.floats());
  Part& part = *FindOrAdd(tensor, partition);
  MutexLock lock(&part.mutex);
  (number == 1 ? part.momentum : part.variance) = std::move(values);
  part.version = answer.version();
  part.beta1 = static_cast<float>(answer.momentum().beta1());
  part.unscale = static_cast<float>(answer.momentum().unscale());
  return absl::OkStatus();
}

absl::StatusOr<bool> SharedMomentum::Make(const Wanted& wanted, std::span<float> gradient,
                                          std::vector<uint32_t>* unmasked) {
  Part* const found = Find(*wanted.tensor, wanted.partition);
  if (found == nullptr) return false;
  Part& part = *found;
  MutexLock lock(&part.mutex);
  const std::span<const float> momentum = part.momentum.floats();
  if (part.version + 1 != wanted.round || momentum.size() != gradient.size()) {
    return absl::FailedPreconditionError(
        absl::StrCat(Where(*wanted.tensor, wanted.partition), "the push of round ", wanted.round,
                     " is made from the momentum of version ", wanted.round - 1,
                     "; pull that first, version ", part.version, " was pulled last"));
  }
  *unmasked = FindUnmasked(gradient, part.variance.floats());
  const float beta1 = wanted.beta1.value_or(part.beta1);
  const float of_momentum = beta1 * part.unscale, of_gradient = (1 - beta1) * wanted.grad_scale;
  for (size_t i = 0; i < gradient.size(); ++i) {
    gradient[i] = of_momentum * momentum[i] + of_gradient * gradient[i];
  }
  return true;
}

absl::Status SharedMomentum::Step(const TensorPlan& tensor, size_t partition,
                                  const wire::PullReplyItem& answer,
                                  std::span<const std::byte> payload, std::span<float> weights) {
  Part* const found = Find(tensor, partition);
  if (found == nullptr) {
    return absl::FailedPreconditionError(
        absl::StrCat(Where(tensor, partition), "version ", answer.version(),
                     " came as a momentum, and the variance was not pulled before"));
  }
  Part& part = *found;
  MutexLock lock(&part.mutex);
  if (part.momentum.size() != part.variance.size() ||
      part.variance.floats().size() != weights.size()) {
    return absl::FailedPreconditionError(absl::StrCat(
        Where(tensor, partition), "expected ", weights.size(), " elements of momentum and variance",
        ", got ", part.momentum.floats().size(), " and ", part.variance.floats().size()));
  }
  const std::span<const uint32_t> unmasked(answer.momentum().unmasked().data(),
                                           static_cast<size_t>(answer.momentum().unmasked_size()));
  if (!AreRuns(unmasked, weights.size())) {
    return absl::InvalidArgumentError(absl::StrCat(
        Where(tensor, partition), "version ", answer.version(), " unmasks ", unmasked.size(),
        " numbers, expected rising runs of ", weights.size(), " elements"));
  }
  const std::span<float> momentum = part.momentum.floats(), variance = part.variance.floats();
  DecodeAll(static_cast<PayloadFormat>(answer.format()), payload, momentum);
  UpdateStep step;
  step.scale = static_cast<float>(answer.momentum().scale());
  step.adam_step = static_cast<float>(answer.momentum().step());
  step.epsilon = static_cast<float>(answer.momentum().epsilon());
  step.shrink = static_cast<float>(answer.momentum().shrink());
  SettleMomentum(unmasked,
                 {.scale = step.scale, .beta1 = static_cast<float>(answer.momentum().beta1())},
                 momentum, variance);
  BestKernels().update.adam.store(WithFrozenVariance(step), {.before = weights.data(),
                                                             .sum = momentum.data(),
                                                             .after = weights.data(),
                                                             .state0 = momentum.data(),
                                                             .state1 = variance.data(),
                                                             .n = weights.size()});
  part.version = answer.version();
  part.beta1 = static_cast<float>(answer.momentum().beta1());
  part.unscale = static_cast<float>(answer.momentum().unscale());
  return absl::OkStatus();
}

}  // namespace slimps
