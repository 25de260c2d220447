// SPDX-License-Identifier: Apache-2.0
#include "worker/tensor/value_check.h"

#include <cmath>
#include <string>

#include "absl/strings/str_cat.h"

namespace slimps {

absl::Status CheckFinite(const Key& key, std::span<const float> values, float scale,
                         const char* what, size_t first, const char* outcome) {
  // One pass without a branch per element: the sum of x * 0 is NaN if any x is not finite.
  float probe = 0;
  for (float value : values) probe += value * scale * 0.0f;
  if (probe == 0.0f) return absl::OkStatus();
  size_t at = 0;
  while (std::isfinite(values[at] * scale)) ++at;
  const std::string times =
      std::isfinite(values[at]) ? absl::StrCat(", times ", scale, " not finite") : "";
  return absl::InvalidArgumentError(absl::StrCat(what, " of key ", key.typed_name(), ": element ",
                                                 first + at, " is ", values[at], times,
                                                 "; expected finite values; ", outcome));
}

absl::Status CheckLength(const TensorPlan& tensor, size_t elements, const char* what) {
  if (elements == tensor.elements) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(what, " of key ", tensor.key.typed_name(),
                                                 ": expected ", tensor.elements, " elements, got ",
                                                 elements));
}

absl::Status CheckDevices(const Key& key, std::span<const std::span<const float>> gradients) {
  if (gradients.empty()) {
    return absl::InvalidArgumentError(absl::StrCat("push of key ", key.typed_name(),
                                                   ": expected an array of at least one device"));
  }
  for (size_t i = 1; i < gradients.size(); ++i) {
    if (gradients[i].size() == gradients[0].size()) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("push of key ", key.typed_name(), ": device ", i, " has ", gradients[i].size(),
                     " elements, expected ", gradients[0].size(), " as device 0 has"));
  }
  return absl::OkStatus();
}

void SumDevices(std::span<const std::span<const float>> gradients, std::span<float> sum,
                float scale) {
  for (size_t k = 0; k < sum.size(); ++k) sum[k] = gradients[0][k] * scale;
  for (const std::span<const float> gradient : gradients.subspan(1)) {
    for (size_t k = 0; k < sum.size(); ++k) sum[k] += gradient[k] * scale;
  }
}

}  // namespace slimps
