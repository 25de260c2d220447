// SPDX-License-Identifier: Apache-2.0
// Checks that every store makes on the arrays that it is given, and the sum of several devices'
// arrays. Pure; thread-safe.
//
//   SLIMPS_RETURN_IF_ERROR(CheckLength(tensor, gradient.size(), "push"));
//   SLIMPS_RETURN_IF_ERROR(CheckFinite(key, gradient, /*scale=*/1, "push"));
#ifndef SLIMPS_WORKER_TENSOR_VALUE_CHECK_H_
#define SLIMPS_WORKER_TENSOR_VALUE_CHECK_H_

#include <cstddef>
#include <span>

#include "absl/status/status.h"
#include "proto/base/key.h"
#include "worker/tensor/key_table.h"

namespace slimps {

// Checks that every value times `scale` is finite. `what` begins the message: "push", "initial
// value"; `outcome` ends it. values[0] is the key's element `first`.
// InvalidArgument: a value is NaN or infinite, or becomes so; the message names key, element and
// value.
[[nodiscard]] absl::Status CheckFinite(const Key& key, std::span<const float> values, float scale,
                                       const char* what, size_t first = 0,
                                       const char* outcome = "nothing was sent");

// InvalidArgument: `elements` is not the tensor's number of elements.
[[nodiscard]] absl::Status CheckLength(const TensorPlan& tensor, size_t elements, const char* what);

// InvalidArgument: there is no array, or one differs from the first in length.
[[nodiscard]] absl::Status CheckDevices(const Key& key,
                                        std::span<const std::span<const float>> gradients);
// Adds up the devices' arrays: sum[k] = (gradients[0][k] * scale + gradients[1][k] * scale) + ...
// REQUIRES: CheckDevices returned OK, and `sum` has the arrays' length.
void SumDevices(std::span<const std::span<const float>> gradients, std::span<float> sum,
                float scale = 1.0f);

}  // namespace slimps

#endif  // SLIMPS_WORKER_TENSOR_VALUE_CHECK_H_
