// Whole files in memory, decompressed, with a limit that the caller sets: a file never decides how
// much is allocated. NotFound: no such file. DataLoss: the compressed stream is damaged or cut
// short, or holds more than `max_bytes`. Functions are thread-safe.
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
[[nodiscard]] absl::StatusOr<std::vector<uint8_t>> ReadXzFile(const std::string& path,
                                                              size_t max_bytes);
bool FileExists(const std::string& path);

}  // namespace slimps

#endif  // SLIMPS_WORKER_TRAINER_DATA_FILE_H_
