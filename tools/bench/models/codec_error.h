// SPDX-License-Identifier: Apache-2.0
// How much of a model's gradients a codec loses: what budgets are compared by.
//
//   SLIMPS_ASSIGN_OR_RETURN(double part, ErrorOfCodec(model, "qsgd:bits=4,norm=max"));   // 0.0123
//
// Thread-safe: all functions are pure.
#ifndef SLIMPS_TOOLS_BENCH_MODELS_CODEC_ERROR_H_
#define SLIMPS_TOOLS_BENCH_MODELS_CODEC_ERROR_H_

#include <cstddef>
#include <span>
#include <string_view>

#include "absl/status/statusor.h"
#include "tools/bench/models/models.h"

namespace slimps {

// Tensors with fewer elements are always raw, as policies that adapt have it by default. They count
// neither as error nor as gradient.
inline constexpr size_t kRawElements = 256;

// Returns |x - decode(encode(x))|^2 / |x|^2 over worker 0's gradients (GradientMaker), each tensor
// whole and without a residual. Tensors that the codec does not take are raw. powersgd:
// LowRankError, since its exchange takes more than one worker's payload.
// InvalidArgument: no such codec, or one with phases of another kind.
[[nodiscard]] absl::StatusOr<double> ErrorOfCodec(const ModelShape& model, std::string_view codec);

// Returns |x - p p^T x|^2 for the `rank` columns of p to which kSteps steps of subspace iteration
// lead: where powersgd's warm start gets to, if the gradients stay alike.
// REQUIRES: matrix.size() == rows * columns, rank <= rows.
double LowRankError(std::span<const float> matrix, size_t rows, size_t rank);
inline constexpr int kSteps = 4;

}  // namespace slimps

#endif  // SLIMPS_TOOLS_BENCH_MODELS_CODEC_ERROR_H_
