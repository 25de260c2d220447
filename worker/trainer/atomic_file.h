// Writes a whole file so that whoever reads it sees it complete or not at all: to a draft beside
// it, then renamed.
#ifndef SLIMPS_WORKER_TRAINER_ATOMIC_FILE_H_
#define SLIMPS_WORKER_TRAINER_ATOMIC_FILE_H_

#include <string>
#include <string_view>

#include "absl/status/status.h"

namespace slimps {

// Unavailable: names the file and the reason; no draft is left. Thread-safe for different paths.
[[nodiscard]] absl::Status WriteFileAtomically(const std::string& path, std::string_view content);

// Tries whether that could be done now, and leaves nothing behind: the same errors. A file that is there stays as it is.
[[nodiscard]] absl::Status CheckCanWrite(const std::string& path);

}  // namespace slimps

#endif  // SLIMPS_WORKER_TRAINER_ATOMIC_FILE_H_
