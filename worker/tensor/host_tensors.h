// SPDX-License-Identifier: Apache-2.0
// HostTensors: the tensors of one Init, with their values where the CPU reads them.
//
//   SLIMPS_ASSIGN_OR_RETURN(const HostTensors tensors, HostTensors::Of(&devices, given));
//   ... read tensors.all()[0].value ...
#ifndef SLIMPS_WORKER_TENSOR_HOST_TENSORS_H_
#define SLIMPS_WORKER_TENSOR_HOST_TENSORS_H_

#include <vector>

#include "absl/status/statusor.h"
#include "worker/device/devices.h"
#include "worker/device/host_values.h"
#include "worker/tensor/init_tensor.h"

namespace slimps {

// Thread-compatible.
class HostTensors final {
 public:
  // Copies the values that lie on GPUs, and waits for the copies.
  // REQUIRES: values on the host outlive this object.
  // Errors: those of HostValues::Of; they name the key.
  static absl::StatusOr<HostTensors> Of(Devices* devices, const std::vector<InitTensor>& given);

  // The tensors, in the given order. All values lie on the host.
  const std::vector<InitTensor>& all() const { return tensors_; }

 private:
  std::vector<InitTensor> tensors_;
  std::vector<HostValues> values_;
};

}  // namespace slimps

#endif  // SLIMPS_WORKER_TENSOR_HOST_TENSORS_H_
