// SPDX-License-Identifier: Apache-2.0
// HostTensors: the tensors of one Init, with their values where the CPU reads them.
//
//   SLIMPS_ASSIGN_OR_RETURN(const HostTensors tensors, HostTensors::Of(&devices, given));
//   ... read tensors.all()[0].value ...
#ifndef SLIMPS_WORKER_TENSOR_HOST_TENSORS_H_
#define SLIMPS_WORKER_TENSOR_HOST_TENSORS_H_

#include <cstddef>
#include <vector>

#include "absl/status/statusor.h"
#include "worker/device/devices.h"
#include "worker/tensor/init_tensor.h"

namespace slimps {

// Thread-compatible.
class HostTensors final {
 public:
  // At most so many values of GPUs are in pinned memory at once.
  static constexpr size_t kMaxPinnedElements = size_t{1} << 22;

  // Copies the values that lie on GPUs, and waits for the copies.
  // REQUIRES: `given`, and its values on the host, outlive this object.
  // FailedPrecondition: `devices` is null, since the store knows of no GPU.
  // ResourceExhausted: no pinned memory.
  // Also the errors of Devices::Find. All name the key.
  static absl::StatusOr<HostTensors> Of(Devices* devices, const std::vector<InitTensor>& given);

  // The tensors, in the given order. All values lie on the host.
  const std::vector<InitTensor>& all() const { return copied_.empty() ? *given_ : copied_; }

 private:
  explicit HostTensors(const std::vector<InitTensor>* given) : given_(given) {}

  const std::vector<InitTensor>* given_;
  std::vector<InitTensor> copied_;          // empty: no value lies on a GPU
  std::vector<std::vector<float>> values_;  // of `copied_`, from GPUs
};

}  // namespace slimps

#endif  // SLIMPS_WORKER_TENSOR_HOST_TENSORS_H_
