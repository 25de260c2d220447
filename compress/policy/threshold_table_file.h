// SPDX-License-Identifier: Apache-2.0
// Threshold tables as text and on disk (`--threshold_table FILE`). A file holds the text of
// TableToText, with ExplainTable's lines above it as comments. Where pulls were measured too,
// a line "pull" and their table follow in the same form. Files of older versions lack that line and
// hold no table of pulls.
#ifndef SLIMPS_COMPRESS_POLICY_THRESHOLD_TABLE_FILE_H_
#define SLIMPS_COMPRESS_POLICY_THRESHOLD_TABLE_FILE_H_

#include <optional>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "compress/policy/threshold_table.h"

namespace slimps {

// Returns line-oriented text that ParseTable reads back to an equal table.
std::string TableToText(const ThresholdTable& table);

// Parses what TableToText wrote.
// InvalidArgument: the message names the line, what was expected there and what came.
[[nodiscard]] absl::StatusOr<ThresholdTable> ParseTable(std::string_view text);

struct ThresholdTables {
  std::optional<ThresholdTable> push, pull;
};

// Replaces `path` as a whole: a reader sees either the old tables or the new ones.
// Unavailable: the file cannot be written.
[[nodiscard]] absl::Status SaveThresholdTables(const ThresholdTables& tables,
                                               const std::string& path);

// Reads what SaveThresholdTables wrote.
// NotFound: the file cannot be opened.
// InvalidArgument: the file is malformed or larger than 16 MiB. For malformed text the message
// names file, line, expected and got.
[[nodiscard]] absl::StatusOr<ThresholdTables> LoadThresholdTables(const std::string& path);

}  // namespace slimps

#endif  // SLIMPS_COMPRESS_POLICY_THRESHOLD_TABLE_FILE_H_
