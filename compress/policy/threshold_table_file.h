// Threshold tables on disk (`--threshold_table FILE`): the text of ThresholdTable::ToText, with Explain's lines as
// comments above it; where pulls were measured too, then a line "pull" and their table in the same way. A file without
// that line, as older versions wrote them, holds no table of pulls.
#ifndef SLIMPS_COMPRESS_POLICY_THRESHOLD_TABLE_FILE_H_
#define SLIMPS_COMPRESS_POLICY_THRESHOLD_TABLE_FILE_H_

#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "compress/policy/threshold_table.h"

namespace slimps {

struct ThresholdTables {
  std::optional<ThresholdTable> push, pull;
};

// Replaces `path` as a whole: a reader sees the old tables or the new ones. Unavailable: cannot be
// written.
[[nodiscard]] absl::Status SaveThresholdTables(const ThresholdTables& tables,
                                               const std::string& path);

// NotFound: no such file. InvalidArgument: names file, line, expected and got.
[[nodiscard]] absl::StatusOr<ThresholdTables> LoadThresholdTables(const std::string& path);

}  // namespace slimps

#endif  // SLIMPS_COMPRESS_POLICY_THRESHOLD_TABLE_FILE_H_
