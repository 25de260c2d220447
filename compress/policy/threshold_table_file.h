// A threshold table on disk (`--threshold_table FILE`): the text of ThresholdTable::ToText, with
// Explain's lines as comments above it.
#ifndef SLIMPS_COMPRESS_POLICY_THRESHOLD_TABLE_FILE_H_
#define SLIMPS_COMPRESS_POLICY_THRESHOLD_TABLE_FILE_H_

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "compress/policy/threshold_table.h"

namespace slimps {

// Replaces `path` as a whole: a reader sees the old table or the new one. Unavailable: cannot be
// written.
[[nodiscard]] absl::Status SaveThresholdTable(const ThresholdTable& table, const std::string& path);

// NotFound: no such file. InvalidArgument: names file, line, expected and got.
[[nodiscard]] absl::StatusOr<ThresholdTable> LoadThresholdTable(const std::string& path);

}  // namespace slimps

#endif  // SLIMPS_COMPRESS_POLICY_THRESHOLD_TABLE_FILE_H_
