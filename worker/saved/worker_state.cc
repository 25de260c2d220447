// SPDX-License-Identifier: Apache-2.0
#include "worker/saved/worker_state.h"

#include <cstdint>

#include "absl/strings/str_cat.h"
#include "proto/base/status_macros.h"
#include "worker/saved/checked_content.h"

namespace slimps {
namespace {

constexpr std::string_view kMagic = "SLPSWORK";
constexpr uint32_t kVersion = 1;
constexpr size_t kOther = 64;  // at least as much as the numbers take

}  // namespace

std::string BuildWorkerState(const WorkerState& state) {
  const std::string progress = state.progress.SerializeAsString();
  ContentBuilder content(kMagic,
                         progress.size() + state.own.size() + state.residuals.size() + kOther);
  content.Add(kVersion);
  content.AddText(progress);
  content.Add(uint64_t{state.own.size()});
  content.AddBytes(state.own);
  content.AddBytes(state.residuals);
  return std::move(content).Seal();
}

absl::StatusOr<WorkerState> ParseWorkerState(std::string_view content, const std::string& path) {
  SLIMPS_ASSIGN_OR_RETURN(ContentReader reader, ContentReader::Open(content, kMagic, path));
  uint32_t version = 0;
  SLIMPS_RETURN_IF_ERROR(reader.Read(&version, "version"));
  if (version != kVersion) {
    return reader.Wrong(absl::StrCat("expected version ", kVersion, ", got ", version));
  }
  WorkerState state;
  SLIMPS_ASSIGN_OR_RETURN(const std::string_view progress, reader.TakeText("progress"));
  if (!state.progress.ParseFromArray(progress.data(), static_cast<int>(progress.size()))) {
    return reader.Wrong("its progress is no saved::WorkerProgress");
  }
  uint64_t bytes = 0;
  SLIMPS_RETURN_IF_ERROR(reader.Read(&bytes, "bytes of the caller's state"));
  SLIMPS_ASSIGN_OR_RETURN(state.own, reader.Take(bytes, "the caller's state"));
  state.residuals = reader.rest();
  return state;
}

}  // namespace slimps
