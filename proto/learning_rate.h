// SPDX-License-Identifier: Apache-2.0
// The learning rate of a round, by the schedule of OptimizerSpec. With t = begin_round + round - 1,
// W warm-up rounds, s = t - W, T total rounds:
//
//   t < W      lr * (t + 1) / W
//   CONSTANT   lr
//   STEP       lr * factor^floor(s / every)
//   COSINE     final + (lr - final) * (1 + cos(pi * min(s, T) / T)) / 2
//   LINEAR     lr + (final - lr) * min(s, T) / T
//              with a `power` other than 0 or 1: final + (lr - final) * (1 - min(s, T) / T)^power
//
//   wire::LearningRateSchedule schedule;
//   schedule.set_warmup_rounds(4);
//   LearningRateAt(0.1, schedule, 1);   // 0.025
//
// Pure. All functions are thread-safe.
#ifndef SLIMPS_PROTO_LEARNING_RATE_H_
#define SLIMPS_PROTO_LEARNING_RATE_H_

#include <cstdint>

#include "absl/status/status.h"
#include "proto/slimps.pb.h"

namespace slimps {

// Checks the schedule.
// InvalidArgument: a field makes no sense; the message names it.
[[nodiscard]] absl::Status ValidateSchedule(const wire::LearningRateSchedule& schedule);

// Returns the learning rate of `round`, for the base rate `learning_rate`.
// REQUIRES: round >= 1, and ValidateSchedule returned OK.
double LearningRateAt(double learning_rate, const wire::LearningRateSchedule& schedule,
                      uint64_t round);

}  // namespace slimps

#endif  // SLIMPS_PROTO_LEARNING_RATE_H_
