// SPDX-License-Identifier: Apache-2.0
#include "proto/net/local_sockets.h"

#include <signal.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <random>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "proto/base/status_macros.h"
#include "proto/net/address.h"

namespace slimps {
namespace {

constexpr mode_t kOwnerOnly = 0700;

// Returns what the names of sockets of this network namespace begin with.
std::string NamespacePrefix() {
  struct stat about {};
  return absl::StrCat(stat("/proc/self/ns/net", &about) == 0 ? about.st_ino : 0, "-");
}

// OK if only this user can enter the directory. No link is followed: another user may have made it.
absl::Status CheckDirectory(const std::string& path) {
  struct stat about {};
  if (lstat(path.c_str(), &about) != 0) {
    return absl::UnavailableError(absl::StrCat(path, ": ", std::strerror(errno)));
  }
  if (S_ISDIR(about.st_mode) && about.st_uid == geteuid() &&
      (about.st_mode & 07777) == kOwnerOnly) {
    return absl::OkStatus();
  }
  return absl::PermissionDeniedError(
      absl::StrFormat("%s: expected a directory of user %d with mode 0700, got user %d, mode %04o",
                      path, geteuid(), about.st_uid, about.st_mode & 07777));
}

// Removes sockets of this namespace on which nobody listens because their process has ended.
void RemoveLeftOvers(const std::string& directory, const std::string& prefix) {
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator(directory, ignored)) {
    const std::string name = entry.path().filename();
    if (!name.starts_with(prefix)) continue;
    const auto pid = static_cast<pid_t>(std::atoi(name.c_str() + prefix.size()));
    // A process that has just begun may have bound its socket and not listen yet. So its number
    // counts, too.
    if (pid <= 0 || kill(pid, 0) == 0 || errno != ESRCH) continue;
    if (!IpcPathIsServed(entry.path())) unlink(entry.path().c_str());
  }
}

}  // namespace

std::string LocalSocketDirectory() { return absl::StrCat("/tmp/slimps-", geteuid()); }

absl::StatusOr<std::string> UnusedLocalAddress(const std::string& directory) {
  if (mkdir(directory.c_str(), kOwnerOnly) != 0 && errno != EEXIST) {
    return absl::UnavailableError(
        absl::StrCat("cannot make ", directory, ": ", std::strerror(errno)));
  }
  SLIMPS_RETURN_IF_ERROR(CheckDirectory(directory));
  const std::string prefix = NamespacePrefix();
  RemoveLeftOvers(directory, prefix);
  uint64_t number = 0;
  if (getrandom(&number, sizeof(number), 0) != sizeof(number)) number = std::random_device()();
  return absl::StrCat("ipc://", directory, "/", prefix, getpid(), "-",
                      absl::Hex(number, absl::kZeroPad16));
}

bool LocalSocketIsOurs(const std::string& path, const std::string& directory) {
  return path.starts_with(absl::StrCat(directory, "/", NamespacePrefix())) &&
         path.find('/', directory.size() + 1) == std::string::npos &&
         CheckDirectory(directory).ok() && IpcPathIsServed(path);
}

}  // namespace slimps
