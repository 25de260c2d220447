// SPDX-License-Identifier: Apache-2.0
#include "compress/policy/threshold_table_file.h"

#include <algorithm>
#include <fstream>
#include <sstream>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "proto/base/file.h"
#include "proto/base/status_macros.h"

namespace slimps {
namespace {

// A limit before anything is read: a file from elsewhere must not fill the memory.
constexpr std::streamsize kMaxFileBytes = 16 << 20;
constexpr std::string_view kPullLine = "pull\n";

std::string AsComments(const std::string& text) {
  std::istringstream lines(text);
  std::string commented, line;
  while (std::getline(lines, line)) absl::StrAppend(&commented, "# ", line, "\n");
  return commented;
}

std::string FileText(const ThresholdTable& table) {
  return absl::StrCat(AsComments(table.Explain()), table.ToText());
}

absl::StatusOr<ThresholdTables> ParseTables(const std::string& text) {
  ThresholdTables tables;
  const size_t mark =
      text.starts_with(kPullLine) ? 0 : text.find(absl::StrCat("\n", std::string(kPullLine)));
  if (mark != 0) {
    const size_t end = mark == std::string::npos ? mark : mark + 1;
    SLIMPS_ASSIGN_OR_RETURN(tables.push, ThresholdTable::Parse(text.substr(0, end)));
  }
  if (mark == std::string::npos) return tables;
  const size_t pull = mark + (mark == 0 ? 0 : 1) + kPullLine.size();
  // Blank lines stand for the lines before the mark, so that errors name the line in the file.
  const auto lines = std::count(text.begin(), text.begin() + static_cast<ptrdiff_t>(pull), '\n');
  SLIMPS_ASSIGN_OR_RETURN(
      tables.pull, ThresholdTable::Parse(absl::StrCat(std::string(static_cast<size_t>(lines), '\n'),
                                                      text.substr(pull))));
  return tables;
}

}  // namespace

absl::Status SaveThresholdTables(const ThresholdTables& tables, const std::string& path) {
  std::string text;
  if (tables.push.has_value()) absl::StrAppend(&text, FileText(*tables.push));
  if (tables.pull.has_value()) {
    absl::StrAppend(&text, std::string(kPullLine), FileText(*tables.pull));
  }
  const absl::Status written = WriteFileDurably(path, text);
  if (written.ok()) return written;
  return absl::Status(written.code(), absl::StrCat("threshold table: ", written.message()));
}

absl::StatusOr<ThresholdTables> LoadThresholdTables(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return absl::NotFoundError(absl::StrCat("threshold table: cannot open ", path));
  std::string text(kMaxFileBytes + 1, '\0');
  file.read(text.data(), kMaxFileBytes + 1);
  if (file.gcount() > kMaxFileBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("threshold table: ", path, " is larger than ", kMaxFileBytes, " bytes"));
  }
  text.resize(static_cast<size_t>(file.gcount()));
  absl::StatusOr<ThresholdTables> tables = ParseTables(text);
  if (!tables.ok()) {
    return absl::Status(tables.status().code(),
                        absl::StrCat(path, ": ", std::string(tables.status().message())));
  }
  return tables;
}

}  // namespace slimps
