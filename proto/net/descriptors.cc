// SPDX-License-Identifier: Apache-2.0
#include "proto/net/descriptors.h"

#include <errno.h>
#include <string.h>
#include <sys/resource.h>

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <system_error>

#include "absl/strings/str_cat.h"

namespace slimps {
namespace {

// The connection itself, and a watch on the other process where that is of this machine.
constexpr size_t kOfAccepted = 2;
// Beside these two, ZeroMQ's own socket and both ends of the one that reports its state.
constexpr size_t kOfMade = kOfAccepted + 3;
// ZeroMQ's threads, listening sockets, an HTTP server's connections, and files.
constexpr size_t kOfProcess = 128;
// What the soft limit leaves to strangers that connect, and to the program around a client.
constexpr size_t kForOthers = 512;

size_t CountOpen() {
  std::error_code error;
  const std::filesystem::directory_iterator open("/proc/self/fd", error);
  return error ? 0 : static_cast<size_t>(std::distance(begin(open), end(open)));
}

}  // namespace

size_t DescriptorsFor(const ConnectionCounts& counts) {
  return kOfProcess + kOfAccepted * counts.accepted + kOfMade * counts.made;
}

absl::Status ReserveDescriptors(const ConnectionCounts& counts) {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return absl::OkStatus();  // ZeroMQ finds out
  const size_t open = CountOpen(), ours = DescriptorsFor(counts), needed = open + ours;
  if (limit.rlim_max < needed) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "too few file descriptors: expected ", needed, " (", open, " are open, ", ours, " for ",
        counts.accepted + counts.made, " connections), got a hard limit of ", limit.rlim_max,
        ": raise it (ulimit -Hn, LimitNOFILE= of a unit, --ulimit nofile= of a container), or "
        "start fewer nodes"));
  }
  if (limit.rlim_cur >= needed + kForOthers) return absl::OkStatus();
  limit.rlim_cur = std::min<rlim_t>(limit.rlim_max, needed + kForOthers);
  if (setrlimit(RLIMIT_NOFILE, &limit) == 0) return absl::OkStatus();
  return absl::ResourceExhaustedError(absl::StrCat("cannot raise the limit of open files to ",
                                                   limit.rlim_cur, ": ", strerror(errno)));
}

}  // namespace slimps
