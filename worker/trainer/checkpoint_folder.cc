// SPDX-License-Identifier: Apache-2.0
#include "worker/trainer/checkpoint_folder.h"

#include <algorithm>
#include <filesystem>
#include <functional>
#include <system_error>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace slimps {
namespace {

constexpr size_t kKept = 2;
constexpr char kPrefix[] = "step-";

bool IsWhole(const std::string& folder) {
  std::error_code error;
  return std::filesystem::exists(folder + "/manifest.json", error);
}

// Returns the folders of steps, the newest first.
std::vector<std::string> NewestFirst(const std::string& folder) {
  std::vector<std::string> found;
  std::error_code error;
  for (std::filesystem::directory_iterator one(folder, error), end; !error && one != end;
       one.increment(error)) {
    if (one->path().filename().string().starts_with(kPrefix)) found.push_back(one->path());
  }
  std::ranges::sort(found, std::greater<>());
  return found;
}

}  // namespace

std::string CheckpointOf(const std::string& folder, size_t step) {
  return absl::StrFormat("%s/%s%09d", folder, kPrefix, step);
}

absl::StatusOr<std::string> FindCheckpoint(const std::string& folder) {
  if (IsWhole(folder)) return folder;
  for (const std::string& one : NewestFirst(folder)) {
    if (IsWhole(one)) return one;
  }
  return absl::NotFoundError(
      absl::StrCat(folder, ": expected a checkpoint, or a folder with some; got none"));
}

absl::Status CheckNoLaterCheckpoint(const std::string& folder, size_t step) {
  const std::filesystem::path own = std::filesystem::path(CheckpointOf(folder, step)).filename();
  for (const std::string& one : NewestFirst(folder)) {
    if (!IsWhole(one) || std::filesystem::path(one).filename() <= own) continue;
    return absl::FailedPreconditionError(
        absl::StrCat("--checkpoint: expected no checkpoint of a later step than ", step,
                     ", from which this run goes on, got ", one,
                     "; resume from it (--resume), remove it, or give another folder"));
  }
  return absl::OkStatus();
}

void RemoveOldCheckpoints(const std::string& folder, size_t step) {
  const std::filesystem::path newest = std::filesystem::path(CheckpointOf(folder, step)).filename();
  size_t whole = 0;
  for (const std::string& one : NewestFirst(folder)) {
    if (std::filesystem::path(one).filename() >= newest) continue;
    if (IsWhole(one) && ++whole <= kKept) continue;
    std::error_code error;
    std::filesystem::remove_all(one, error);
  }
}

}  // namespace slimps
