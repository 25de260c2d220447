// SPDX-License-Identifier: Apache-2.0
// The CUDA device: gradients of a GPU, through the driver.
//
//   caller                               lane (one per direction)
//   record `ready` on the stream   -->   copy stream: wait(ready), copy, record `arrived`
//   that the memory belongs to           thread: synchronise(arrived), done(key, status)
//
// Each direction has its own non-blocking stream. So gradients going down and weights coming up use
// both copy engines. A copy waits only for the framework's kernels that made its source, and delays
// none of them. After a copy to the device, the given stream waits for `arrived`, so that its later
// kernels see the weights.
#ifndef SLIMPS_WORKER_DEVICE_CUDA_CUDA_DEVICE_H_
#define SLIMPS_WORKER_DEVICE_CUDA_CUDA_DEVICE_H_

#include <memory>

#include "absl/status/statusor.h"
#include "worker/device/cuda/cuda_driver.h"
#include "worker/device/device.h"
#include "worker/device/devices.h"

namespace slimps {

// Returns the GPU of this number, through `driver`, which outlives the device and its buffers.
// FailedPrecondition: the machine has no GPU of this number.
absl::StatusOr<std::unique_ptr<Device>> MakeCudaDevice(CudaDriver* driver, int ordinal);

// Returns what makes GPUs, through `driver` or, if that is null, the machine's own.
Devices::MakeGpu GpusOf(CudaDriver* driver);

}  // namespace slimps

#endif  // SLIMPS_WORKER_DEVICE_CUDA_CUDA_DEVICE_H_
