// SPDX-License-Identifier: Apache-2.0
// Reads whole files into memory, decompressed. The caller sets a limit, so that a file never
// decides how much is allocated. Thread-safe.
//
//   SLIMPS_ASSIGN_OR_RETURN(std::vector<uint8_t> bytes, ReadGzipFile(path, /*max_bytes=*/4 << 20));
//
// Errors of all three:
//   NotFound: no such file.
//   FailedPrecondition: the file cannot be opened.
//   DataLoss: the content cannot be read, is damaged or cut short, or has more than `max_bytes`.
#ifndef SLIMPS_WORKER_TRAINER_DATA_FILE_H_
#define SLIMPS_WORKER_TRAINER_DATA_FILE_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace slimps {

[[nodiscard]] absl::StatusOr<std::vector<uint8_t>> ReadPlainFile(const std::string& path,
                                                                 size_t max_bytes);

[[nodiscard]] absl::StatusOr<std::vector<uint8_t>> ReadGzipFile(const std::string& path,
                                                                size_t max_bytes);

// The compressed file too may have at most `max_bytes`.
// ResourceExhausted: the decoder cannot start.
[[nodiscard]] absl::StatusOr<std::vector<uint8_t>> ReadXzFile(const std::string& path,
                                                              size_t max_bytes);

bool FileExists(const std::string& path);

}  // namespace slimps

#endif  // SLIMPS_WORKER_TRAINER_DATA_FILE_H_
