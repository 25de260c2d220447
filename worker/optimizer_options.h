// SPDX-License-Identifier: Apache-2.0
// Describes an optimizer by names, numbers and text. One table of names and checks serves every
// interface whose users write optimizers that way.
//
//   SLIMPS_ASSIGN_OR_RETURN(wire::OptimizerSpec sgd, MakeOptimizer("sgd"));
//   SLIMPS_RETURN_IF_ERROR(SetOptimizerNumber("learning_rate", 0.1, &sgd));
//   SLIMPS_RETURN_IF_ERROR(SetOptimizerOption("schedule", "cosine", &sgd));
//
// With g = clip(rescale_grad * sum, +-clip_gradient), element by element in fp32. After each name:
// the optimizers that use it, the values it takes, and its default.
//   learning_rate           0.01 for sgd; 0.001 for adam, adamw and onebit_adam
//   momentum                sgd: 0 to 1; 0
//   nesterov                sgd: 1 or 0; 0
//   weight_decay            0
//   beta1, beta2, epsilon   adam, adamw, onebit_adam: 0.9, 0.999, 1e-8
//   freeze_after            onebit_adam: rounds of its warm-up; 0: until the variance is stable
//   rescale_grad            not 0; 1
//   clip_gradient           bound of each element; 0: off
//   average                 1: the sum is divided by the number of contributing workers; 0
//   schedule                constant, step, cosine or linear; it counts rounds
//     warmup_rounds                     every schedule
//     schedule_every, schedule_factor   step
//     total_rounds, final_lr            cosine, linear
//     schedule_power                    linear; 1
//     schedule_begin_round              rounds of the schedule that an earlier job has done
//
// A store checks the combination of the numbers (proto/optimizer_check.h). Pure; thread-safe.
#ifndef SLIMPS_WORKER_OPTIMIZER_OPTIONS_H_
#define SLIMPS_WORKER_OPTIMIZER_OPTIONS_H_

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/slimps.pb.h"

namespace slimps {

// Returns the optimizer `kind` with its defaults. `kind` is "sgd", "adam", "adamw", "onebit_adam",
// "test" (weight += g) or "none" (a round's sum replaces the value).
// InvalidArgument: another kind.
[[nodiscard]] absl::StatusOr<wire::OptimizerSpec> MakeOptimizer(std::string_view kind);

// Sets one option. After an error `spec` is unchanged.
// InvalidArgument: unknown option (the message lists the known ones), a value that it does not
// take, or one other than 0 of an option that this optimizer does not use.
[[nodiscard]] absl::Status SetOptimizerNumber(std::string_view name, double value,
                                              wire::OptimizerSpec* spec);
[[nodiscard]] absl::Status SetOptimizerOption(std::string_view name, std::string_view value,
                                              wire::OptimizerSpec* spec);

[[nodiscard]] std::vector<std::string> OptimizerOptionNames();

}  // namespace slimps

#endif  // SLIMPS_WORKER_OPTIMIZER_OPTIONS_H_
