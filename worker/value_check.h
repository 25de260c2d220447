// What every store checks of the arrays that it is given, and the sum of several devices' arrays.
//
//   SLIMPS_RETURN_IF_ERROR(CheckLength(tensor, gradient.size(), "push"));
//   SLIMPS_RETURN_IF_ERROR(CheckFinite(key, gradient, /*scale=*/1, "push"));
#ifndef SLIMPS_WORKER_VALUE_CHECK_H_
#define SLIMPS_WORKER_VALUE_CHECK_H_

#include <cstddef>
#include <span>

#include "absl/status/status.h"
#include "proto/base/key.h"
#include "worker/key_table.h"

namespace slimps {

// InvalidArgument naming key, element and value if one, times `scale`, is NaN or infinite. `what`: "push", "initial value".
// values[0] is the key's element `first`.
[[nodiscard]] absl::Status CheckFinite(const Key& key, std::span<const float> values, float scale,
                                       const char* what, size_t first = 0);
// InvalidArgument unless `elements` is the tensor's.
[[nodiscard]] absl::Status CheckLength(const TensorPlan& tensor, size_t elements, const char* what);

// InvalidArgument: no array, or one of another length than the first.
[[nodiscard]] absl::Status CheckDevices(const Key& key,
                                        std::span<const std::span<const float>> gradients);
// sum[k] = (gradients[0][k] * scale + gradients[1][k] * scale) + ... REQUIRES: CheckDevices was OK; sum has their length.
void SumDevices(std::span<const std::span<const float>> gradients, std::span<float> sum,
                float scale = 1.0f);

}  // namespace slimps

#endif  // SLIMPS_WORKER_VALUE_CHECK_H_
