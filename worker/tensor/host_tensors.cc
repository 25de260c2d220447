// SPDX-License-Identifier: Apache-2.0
#include "worker/tensor/host_tensors.h"

#include <algorithm>
#include <memory>
#include <span>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/base/awaited.h"
#include "proto/base/status_copy.h"
#include "proto/base/status_macros.h"
#include "worker/device/host_values.h"

namespace slimps {
namespace {

bool IsOnGpu(const InitTensor& tensor) { return !tensor.place.on_host() && !tensor.value.empty(); }

// Copies a tensor's values part by part through `pinned`.
absl::StatusOr<std::vector<float>> Copy(Device* gpu, const InitTensor& tensor,
                                        std::span<float> pinned) {
  std::vector<float> copy;
  copy.reserve(tensor.value.size());
  while (copy.size() < tensor.value.size()) {
    const std::span<const float> left = tensor.value.subspan(copy.size());
    const std::span<float> part = pinned.first(std::min(pinned.size(), left.size()));
    Awaited copied;
    gpu->CopyToHost(/*key=*/0, left.first(part.size()), tensor.place.stream, part,
                    [done = copied.Callback()](KeyId, absl::Status status) { done(status); });
    SLIMPS_RETURN_IF_ERROR(copied.Await());
    copy.insert(copy.end(), part.begin(), part.end());
  }
  return copy;
}

}  // namespace

absl::StatusOr<HostTensors> HostTensors::Of(Devices* devices,
                                            const std::vector<InitTensor>& given) {
  HostTensors found(&given);
  size_t largest = 0;
  for (const InitTensor& tensor : given) {
    if (IsOnGpu(tensor)) largest = std::max(largest, tensor.value.size());
  }
  if (largest == 0) return found;
  std::unique_ptr<HostBuffer> pinned;  // every GPU copies to the buffers of any
  const auto copy = [&](const InitTensor& tensor) -> absl::StatusOr<std::vector<float>> {
    SLIMPS_ASSIGN_OR_RETURN(Device* const gpu, FindDevice(devices, tensor.value, tensor.place));
    if (pinned == nullptr) {
      SLIMPS_ASSIGN_OR_RETURN(pinned, gpu->KeepHost(std::min(largest, kMaxPinnedElements)));
    }
    return Copy(gpu, tensor, pinned->floats());
  };
  for (const InitTensor& tensor : given) {
    InitTensor& one = found.copied_.emplace_back(tensor);
    if (!IsOnGpu(tensor)) continue;
    absl::StatusOr<std::vector<float>> values = copy(tensor);
    if (!values.ok()) {
      return Prefixed(values.status(), absl::StrCat("init of key ", tensor.key.typed_name()));
    }
    one.value = found.values_.emplace_back(*std::move(values));
    one.place = {};
  }
  return found;
}

}  // namespace slimps
