// SPDX-License-Identifier: Apache-2.0
// CudaContext of cuda_driver.h.
#include "absl/strings/str_cat.h"
#include "proto/base/status_macros.h"
#include "worker/device/cuda/cuda_driver.h"

namespace slimps {

absl::StatusOr<std::shared_ptr<const CudaContext>> CudaContext::Retain(CudaDriver* driver,
                                                                       int ordinal) {
  SLIMPS_ASSIGN_OR_RETURN(const int count, driver->DeviceCount());
  if (ordinal < 0 || ordinal >= count) {
    return absl::FailedPreconditionError(
        absl::StrCat("CUDA device ", ordinal, " asked for, this machine has ", count));
  }
  SLIMPS_ASSIGN_OR_RETURN(void* const context, driver->RetainPrimaryContext(ordinal));
  return std::shared_ptr<const CudaContext>(new CudaContext(driver, ordinal, context));
}

CudaContext::~CudaContext() { driver_->ReleasePrimaryContext(ordinal_); }

CudaContext::Scope::Scope(const CudaContext& context)
    : driver_(context.driver_), status_(driver_->PushContext(context.context_)) {}

CudaContext::Scope::~Scope() {
  if (status_.ok()) driver_->PopContext();
}

}  // namespace slimps
