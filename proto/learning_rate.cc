// SPDX-License-Identifier: Apache-2.0
#include "proto/learning_rate.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "absl/strings/str_cat.h"

namespace slimps {
namespace {

// A double holds it exactly, and it is far below where a sum of rounds would wrap around to 0.
constexpr uint64_t kMaxBeginRounds = uint64_t{1} << 53;

}  // namespace

absl::Status ValidateSchedule(const wire::LearningRateSchedule& schedule) {
  using Schedule = wire::LearningRateSchedule;
  if (schedule.begin_round() > kMaxBeginRounds) {
    return absl::InvalidArgumentError(absl::StrCat("schedule.begin_round: expected at most ",
                                                   kMaxBeginRounds, ", got ",
                                                   schedule.begin_round()));
  }
  if (!(schedule.power() >= 0) || !std::isfinite(schedule.power())) {
    return absl::InvalidArgumentError(
        absl::StrCat("schedule.power: expected at least 0, got ", schedule.power()));
  }
  if (schedule.power() != 0 && schedule.kind() != Schedule::LINEAR) {
    return absl::InvalidArgumentError(
        absl::StrCat("schedule.power: only a LINEAR schedule has one, not ",
                     Schedule::Kind_Name(schedule.kind())));
  }
  switch (schedule.kind()) {
    case Schedule::CONSTANT:
      return absl::OkStatus();
    case Schedule::STEP:
      if (schedule.every() == 0) {
        return absl::InvalidArgumentError("schedule.every: a STEP schedule needs at least 1 round");
      }
      if (!(schedule.factor() > 0) || !std::isfinite(schedule.factor())) {
        return absl::InvalidArgumentError(
            absl::StrCat("schedule.factor: expected a number above 0, got ", schedule.factor()));
      }
      return absl::OkStatus();
    case Schedule::COSINE:
    case Schedule::LINEAR:
      if (schedule.total_rounds() == 0) {
        return absl::InvalidArgumentError(
            "schedule.total_rounds: expected at least 1 round, got 0");
      }
      if (!(schedule.final_lr() >= 0) || !std::isfinite(schedule.final_lr())) {
        return absl::InvalidArgumentError(
            absl::StrCat("schedule.final_lr: expected at least 0, got ", schedule.final_lr()));
      }
      return absl::OkStatus();
    default:
      return absl::InvalidArgumentError(
          absl::StrCat("schedule.kind: unknown value ", static_cast<int>(schedule.kind())));
  }
}

double LearningRateAt(double learning_rate, const wire::LearningRateSchedule& schedule,
                      uint64_t round) {
  using Schedule = wire::LearningRateSchedule;
  const uint64_t t = schedule.begin_round() + round - 1;
  const uint64_t warmup = schedule.warmup_rounds();
  if (t < warmup) {
    return learning_rate * (static_cast<double>(t) + 1.0) / static_cast<double>(warmup);
  }
  const uint64_t s = t - warmup;
  switch (schedule.kind()) {
    case Schedule::STEP: {
      const uint64_t steps = s / schedule.every();
      return learning_rate * std::pow(schedule.factor(), static_cast<double>(steps));
    }
    case Schedule::COSINE:
    case Schedule::LINEAR: {
      const uint64_t total = schedule.total_rounds();
      const double done = static_cast<double>(std::min(s, total)) / static_cast<double>(total);
      const double last = schedule.final_lr();
      if (schedule.kind() == Schedule::LINEAR) {
        const double power = schedule.power();
        if (power == 0 || power == 1) return learning_rate + (last - learning_rate) * done;
        return last + (learning_rate - last) * std::pow(1 - done, power);
      }
      return last + (learning_rate - last) * (1.0 + std::cos(std::numbers::pi * done)) / 2.0;
    }
    default:
      return learning_rate;
  }
}

}  // namespace slimps
