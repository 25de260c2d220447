// SPDX-License-Identifier: Apache-2.0
#include "worker/store/warm_up_end.h"

#include <glog/logging.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "proto/base/status_macros.h"

namespace slimps {
namespace {

constexpr double kStable = 0.96;
constexpr uint32_t kVariance[] = {2};  // the number of v in Adam's state

// Returns the sum of the payload's fp32 values, none of which is negative.
double Norm1(const Payload& payload) {
  double sum = 0;
  for (size_t at = 0; at + sizeof(float) <= payload.size(); at += sizeof(float)) {
    float value = 0;
    std::memcpy(&value, payload.bytes().data() + at, sizeof value);
    sum += value;
  }
  return sum;
}

}  // namespace

absl::StatusOr<WarmUpEnd::Variance> WarmUpEnd::Look(double beta2) {
  Variance now;
  for (const TensorPlan* tensor : keys_->InNameOrder()) {
    SLIMPS_ASSIGN_OR_RETURN(const std::vector<Answer> answers, states_->Ask(*tensor, kVariance));
    for (const Answer& answer : answers) {
      now.updates = std::max(now.updates, answer.pull.state().updates());
      now.norm += Norm1(answer.payload);
    }
  }
  if (now.updates > 0) now.norm /= 1 - std::pow(beta2, static_cast<double>(now.updates));
  return now;
}

absl::Status WarmUpEnd::BeforePush(const Key& key) {
  if (node_->rank() != 0 || !codecs_->compresses_momenta()) return absl::OkStatus();
  MutexLock lock(&mutex_);
  wire::OptimizerSpec spec = *codecs_->optimizer();
  if (spec.freeze_after() != 0 || codecs_->momentum()->CoversAny()) return absl::OkStatus();
  SLIMPS_RETURN_IF_ERROR(keys_->Find(key).status());
  const uint64_t pushed = keys_->PushedRounds(key);
  const auto distance = static_cast<uint64_t>(std::llround(1 / (1 - spec.beta2())));
  if (pushed <= looked_ || pushed % distance != 0) return absl::OkStatus();
  SLIMPS_ASSIGN_OR_RETURN(const Variance now, Look(spec.beta2()));
  looked_ = pushed;
  if (now.updates == 0) return absl::OkStatus();  // another optimizer made the updates so far
  const std::optional<Variance> before = std::exchange(before_, now);
  if (!before.has_value() || now.updates < spec.schedule().warmup_rounds() ||
      now.norm < kStable * before->norm) {
    return absl::OkStatus();
  }
  LOG(INFO) << "onebit_adam: the warm-up ends after update " << now.updates + 1
            << "; the variance was " << now.norm << ", and " << before->norm << " at update "
            << before->updates;
  spec.set_freeze_after(now.updates + 1);
  return set_optimizer_(spec);
}

}  // namespace slimps
