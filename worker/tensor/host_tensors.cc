// SPDX-License-Identifier: Apache-2.0
#include "worker/tensor/host_tensors.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/base/status_copy.h"

namespace slimps {

absl::StatusOr<HostTensors> HostTensors::Of(Devices* devices,
                                            const std::vector<InitTensor>& given) {
  HostTensors found;
  for (const InitTensor& tensor : given) {
    absl::StatusOr<HostValues> values = HostValues::Of(devices, tensor.value, tensor.place);
    if (!values.ok()) {
      return Prefixed(values.status(), absl::StrCat("init of key ", tensor.key.typed_name()));
    }
    InitTensor& one = found.tensors_.emplace_back(tensor);
    one.value = values->span();
    one.place = {};
    found.values_.push_back(*std::move(values));
  }
  return found;
}

}  // namespace slimps
