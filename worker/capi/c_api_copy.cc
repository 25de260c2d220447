// SPDX-License-Identifier: Apache-2.0
// c_api_calls.h: slimps_copy.
#include "proto/base/status_macros.h"
#include "worker/capi/c_api_calls.h"
#include "worker/capi/c_api_outcome.h"
#include "worker/capi/c_api_support.h"
#include "worker/device/copy_between.h"
#include "worker/device/cuda/cuda_device.h"

namespace slimps {
namespace {

// Never freed: its threads may run until the process ends.
Devices* DevicesOfProcess() {
  static Devices* const devices = [] {
    auto* const made = new Devices(MakeHostDevice(), GpusOf(/*driver=*/nullptr));
    made->LimitHost(0);  // a copy's buffer is freed when a larger one is wanted
    return made;
  }();
  return devices;
}

absl::StatusOr<Place> ReadPlace(const char* what, const slimps_place* place, const float* array) {
  if (place == nullptr) return Place();
  return ToPlace(what, *place, SLIMPS_CUDA, array);
}

}  // namespace
}  // namespace slimps

extern "C" slimps_status slimps_copy(const float* from, const slimps_place* from_place, float* to,
                                     const slimps_place* to_place, size_t elements) {
  return slimps::Guarded(__func__, [&]() -> absl::Status {
    SLIMPS_ASSIGN_OR_RETURN(const auto source, slimps::ToSpan("from", from, elements));
    SLIMPS_ASSIGN_OR_RETURN(const auto target, slimps::ToSpan("to", to, elements));
    SLIMPS_ASSIGN_OR_RETURN(const auto source_place,
                            slimps::ReadPlace("from_place", from_place, from));
    SLIMPS_ASSIGN_OR_RETURN(const auto target_place, slimps::ReadPlace("to_place", to_place, to));
    return slimps::CopyBetween(slimps::DevicesOfProcess(), source, source_place, target,
                               target_place);
  });
}
