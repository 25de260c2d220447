// SPDX-License-Identifier: Apache-2.0
// The files about a job's page that only this user can read: --watch_file, which the scheduler
// writes, and --watch_token_file, which the user writes. Thread-safe.
//
//   {"address": "http://127.0.0.1:8090", "token": "...", "job": "slimps", "pid": 12, "host": "a",
//    "begun": 3456}
//
// `begun` is when the process began, in clock ticks since its machine did: another process with its
// pid has another one.
#ifndef SLIMPS_SCHEDULER_WATCH_WATCH_FILE_H_
#define SLIMPS_SCHEDULER_WATCH_WATCH_FILE_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace slimps {

// Writes the --watch_file of a page at "127.0.0.1:8090" that this process serves.
// Unavailable: it cannot be written.
[[nodiscard]] absl::Status WriteWatchFile(const std::string& path, const std::string& address,
                                          const std::string& token, const std::string& job_id);

struct FormerPage {
  uint16_t port = 0;  // 0 and "": there was none
  std::string token;
};

// Returns the page of this job's former scheduler, which was killed: who ends in order removes the
// file. So a page that is open in a browser goes on.
[[nodiscard]] FormerPage ReadWatchFile(const std::string& path, const std::string& job_id);

// Returns the token in a --watch_token_file.
// InvalidArgument: it cannot be read, others than its owner can, or it is no token.
[[nodiscard]] absl::StatusOr<std::string> ReadTokenFile(const std::string& path);

}  // namespace slimps

#endif  // SLIMPS_SCHEDULER_WATCH_WATCH_FILE_H_
