#include "compress/policy/threshold_table_file.h"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <sstream>

#include "absl/strings/str_cat.h"

namespace slimps {
namespace {

constexpr std::streamsize kMaxFileBytes = 16 << 20;

std::string AsComments(const std::string& text) {
  std::istringstream lines(text);
  std::string commented, line;
  while (std::getline(lines, line)) absl::StrAppend(&commented, "# ", line, "\n");
  return commented;
}

absl::Status CannotWrite(const std::string& path) {
  return absl::UnavailableError(
      absl::StrCat("threshold table: cannot write ", path, ": ", std::strerror(errno)));
}

}  // namespace

absl::Status SaveThresholdTable(const ThresholdTable& table, const std::string& path) {
  const std::string unfinished = absl::StrCat(path, ".unfinished");
  {
    std::ofstream file(unfinished, std::ios::binary | std::ios::trunc);
    file << AsComments(table.Explain()) << table.ToText();
    file.close();
    if (!file) return CannotWrite(unfinished);
  }
  if (std::rename(unfinished.c_str(), path.c_str()) != 0) return CannotWrite(path);
  return absl::OkStatus();
}

absl::StatusOr<ThresholdTable> LoadThresholdTable(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return absl::NotFoundError(absl::StrCat("threshold table: cannot open ", path));
  std::string text(kMaxFileBytes + 1, '\0');
  file.read(text.data(), kMaxFileBytes + 1);
  if (file.gcount() > kMaxFileBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("threshold table: ", path, " is larger than ", kMaxFileBytes, " bytes"));
  }
  text.resize(static_cast<size_t>(file.gcount()));
  absl::StatusOr<ThresholdTable> table = ThresholdTable::Parse(text);
  if (!table.ok()) {
    return absl::Status(table.status().code(),
                        absl::StrCat(path, ": ", std::string(table.status().message())));
  }
  return table;
}

}  // namespace slimps
