// An optimizer by names, numbers and text: one table of names and checks for interfaces whose users write them so.
//
//   SLIMPS_ASSIGN_OR_RETURN(wire::OptimizerSpec sgd, MakeOptimizer("sgd"));
//   SLIMPS_RETURN_IF_ERROR(SetOptimizerNumber("learning_rate", 0.1, &sgd));
//   SLIMPS_RETURN_IF_ERROR(SetOptimizerOption("schedule", "cosine", &sgd));
//
// With g = clip(rescale_grad * sum, +-clip_gradient), element by element in fp32:
//   learning_rate     0.01; of adam and adamw 0.001
//   momentum          sgd: 0 to 1; 0
//   nesterov          sgd: 1 or 0; 0
//   weight_decay      0
//   beta1, beta2, epsilon   adam, adamw: 0.9, 0.999, 1e-8
//   rescale_grad      not 0; 1
//   clip_gradient     of each element; 0: off
//   average           1: the sum is divided by the workers that contributed; 0
//   schedule          constant, step, cosine or linear, by rounds; with warmup_rounds, and
//                     schedule_every and schedule_factor (step), total_rounds and final_lr (cosine, linear), schedule_power
//                     (linear; 1), and schedule_begin_round: rounds that an earlier job had of it
//
// What the numbers are together, a store checks (proto/optimizer_check.h). Pure; thread-safe.
#ifndef SLIMPS_WORKER_OPTIMIZER_OPTIONS_H_
#define SLIMPS_WORKER_OPTIMIZER_OPTIONS_H_

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/slimps.pb.h"

namespace slimps {

// `kind`: "sgd", "adam", "adamw", "test" (weight += g) or "none" (a round's sum replaces the value). InvalidArgument: another.
[[nodiscard]] absl::StatusOr<wire::OptimizerSpec> MakeOptimizer(std::string_view kind);

// InvalidArgument: no such option (lists those there are), or not such a value; `spec` is as before.
[[nodiscard]] absl::Status SetOptimizerNumber(std::string_view name, double value,
                                              wire::OptimizerSpec* spec);
[[nodiscard]] absl::Status SetOptimizerOption(std::string_view name, std::string_view value,
                                              wire::OptimizerSpec* spec);
[[nodiscard]] std::vector<std::string> OptimizerOptionNames();

}  // namespace slimps

#endif  // SLIMPS_WORKER_OPTIMIZER_OPTIONS_H_
