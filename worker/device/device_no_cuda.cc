// SPDX-License-Identifier: Apache-2.0
// Stands in for device_cuda.cc in a build without CUDA.
#include "worker/device/device.h"

namespace slimps {

absl::StatusOr<std::unique_ptr<Device>> MakeCudaDevice(int /*ordinal*/) {
  return absl::FailedPreconditionError(
      "this build has no CUDA: build with --config=cuda where the CUDA toolkit is installed");
}

}  // namespace slimps
