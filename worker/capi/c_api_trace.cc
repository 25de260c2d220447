// SPDX-License-Identifier: Apache-2.0
#include "worker/capi/c_api_trace.h"

#include <array>
#include <string>

#include "absl/strings/str_cat.h"
#include "proto/base/clock.h"
#include "proto/base/status_macros.h"
#include "proto/base/trace/trace.h"
#include "worker/capi/c_api_outcome.h"
#include "worker/capi/c_api_support.h"

namespace slimps {
namespace {

constexpr char kRole[] = "worker";

// By SLIMPS_TRACE_...
constexpr std::array kRows = {TraceStage::kForward, TraceStage::kBackward, TraceStage::kStep,
                              TraceStage::kCall};

SteadyTime FromNanoseconds(int64_t since_epoch) {
  return SteadyTime::AtEpochPlus(absl::Nanoseconds(since_epoch));
}

}  // namespace
}  // namespace slimps

extern "C" {

slimps_status slimps_trace_start(const char* path) {
  return slimps::Guarded(__func__, [=]() -> absl::Status {
    SLIMPS_RETURN_IF_ERROR(slimps::CheckText("path", path));
    if (slimps::TraceLog::Global().recording()) {
      return absl::FailedPreconditionError("this process records already");
    }
    SLIMPS_RETURN_IF_ERROR(slimps::CheckTracePath(path));
    slimps::TraceLog::Global().Start(slimps::kRole);
    return absl::OkStatus();
  });
}

slimps_status slimps_trace_span(int32_t row, const char* name, uint64_t round, int64_t began_ns,
                                int64_t ended_ns) {
  return slimps::Guarded(__func__, [=]() -> absl::Status {
    SLIMPS_RETURN_IF_ERROR(slimps::CheckText("name", name));
    SLIMPS_RETURN_IF_ERROR(slimps::CheckChoice("row", row, slimps::kRows.size() - 1));
    slimps::TraceLog::Global().AddOfThread(
        slimps::kRows[static_cast<size_t>(row)], {.key = name, .round = round},
        slimps::FromNanoseconds(began_ns), slimps::FromNanoseconds(ended_ns));
    return absl::OkStatus();
  });
}

slimps_status slimps_trace_finish(const char* path, uint32_t rank) {
  return slimps::Guarded(__func__, [=]() -> absl::Status {
    SLIMPS_RETURN_IF_ERROR(slimps::CheckText("path", path));
    slimps::TraceLog& log = slimps::TraceLog::Global();
    if (!log.recording()) return absl::FailedPreconditionError("this process does not record");
    log.Stop();
    log.SetProcessName(absl::StrCat(slimps::kRole, " ", rank));
    return log.WriteTo(slimps::TracePartPath(path, slimps::kRole, rank));
  });
}

}  // extern "C"
