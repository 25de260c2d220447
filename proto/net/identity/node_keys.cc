// SPDX-License-Identifier: Apache-2.0
#include "proto/net/identity/node_keys.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <set>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "proto/base/status_macros.h"

namespace slimps {
namespace {

constexpr size_t kMaxFileBytes = size_t{1} << 20;

enum class Kept { kSecret, kPublic };

absl::Status FileError(const std::string& path, const std::string& what) {
  return absl::InvalidArgumentError(absl::StrCat(path, ": ", what));
}

absl::StatusOr<std::string> ReadFile(const std::string& path, Kept kept) {
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) {
    const std::string text = absl::StrCat("cannot read ", path, ": ", std::strerror(errno));
    return errno == ENOENT ? absl::NotFoundError(text) : absl::InvalidArgumentError(text);
  }
  struct stat about {};
  std::string content;
  char chunk[4096];
  ssize_t got = fstat(fd, &about) == 0 ? 1 : -1;
  while (got > 0 && content.size() <= kMaxFileBytes) {
    got = read(fd, chunk, sizeof(chunk));
    if (got > 0) content.append(chunk, static_cast<size_t>(got));
  }
  const int why = errno;
  close(fd);
  if (got < 0) return FileError(path, std::strerror(why));
  if (content.size() > kMaxFileBytes) return FileError(path, "expected at most 1 MiB");
  if (kept == Kept::kSecret && (about.st_mode & (S_IRWXG | S_IRWXO)) != 0) {
    return FileError(path, absl::StrCat("others than its owner can reach this secret key: chmod "
                                        "600 ",
                                        path));
  }
  return content;
}

// Returns the words of each line that is no comment, with the line's number.
std::vector<std::pair<int, std::vector<std::string>>> WordsOf(const std::string& content) {
  std::vector<std::pair<int, std::vector<std::string>>> lines;
  int number = 0;
  for (const absl::string_view line : absl::StrSplit(content, '\n')) {
    ++number;
    const absl::string_view text = absl::StripAsciiWhitespace(line);
    if (text.empty() || text.front() == '#') continue;
    lines.push_back({number, absl::StrSplit(text, absl::ByAnyChar(" \t"), absl::SkipEmpty())});
  }
  return lines;
}

absl::StatusOr<AllowedNode> ParseNode(const std::vector<std::string>& words) {
  AllowedNode node;
  constexpr std::pair<const char*, wire::Role> kRoles[] = {
      {"scheduler", wire::SCHEDULER}, {"server", wire::SERVER}, {"worker", wire::WORKER}};
  for (const auto& [name, role] : kRoles) {
    if (!words.empty() && words[0] == name) node.role = role;
  }
  if (words.size() != 3 || node.role == wire::ROLE_UNSPECIFIED ||
      !absl::SimpleAtoi(words[1], &node.rank)) {
    return absl::InvalidArgumentError(
        "expected \"ROLE RANK KEY\", where ROLE is scheduler, server or worker");
  }
  SLIMPS_ASSIGN_OR_RETURN(node.public_key, ParseNodeKey(words[2]));
  return node;
}

}  // namespace

absl::StatusOr<std::string> ParseNodeKey(std::string_view text) {
  bool is_key = text.size() == 2 * kNodeKeyBytes;
  for (const char c : text) is_key = is_key && absl::ascii_isxdigit(static_cast<unsigned char>(c));
  if (is_key) return absl::HexStringToBytes(absl::string_view(text.data(), text.size()));
  return absl::InvalidArgumentError(absl::StrCat("expected a key of ", 2 * kNodeKeyBytes,
                                                 " hexadecimal digits, got ", text.size(),
                                                 " characters"));
}

absl::StatusOr<std::string> ReadKeyFile(const std::string& path) {
  SLIMPS_ASSIGN_OR_RETURN(const std::string content, ReadFile(path, Kept::kSecret));
  const auto lines = WordsOf(content);
  if (lines.size() != 1 || lines[0].second.size() != 2 || lines[0].second[0] != "secret") {
    return FileError(path, "expected one line \"secret KEY\", as slimps keygen writes it");
  }
  absl::StatusOr<std::string> key = ParseNodeKey(lines[0].second[1]);
  if (!key.ok()) return FileError(path, std::string(key.status().message()));
  return key;
}

absl::StatusOr<std::vector<AllowedNode>> ReadAllowFile(const std::string& path) {
  SLIMPS_ASSIGN_OR_RETURN(const std::string content, ReadFile(path, Kept::kPublic));
  std::vector<AllowedNode> nodes;
  std::set<std::pair<wire::Role, uint32_t>> places;
  std::set<std::string> keys;
  for (const auto& [number, words] : WordsOf(content)) {
    const auto refuse = [&, line = number](absl::string_view why) {
      return FileError(path, absl::StrCat("line ", line, ": ", why));
    };
    absl::StatusOr<AllowedNode> node = ParseNode(words);
    if (!node.ok()) return refuse(node.status().message());
    if (!places.insert({node->role, node->rank}).second) return refuse("a second key of one node");
    if (!keys.insert(node->public_key).second) return refuse("the key of another node");
    if (node->role != wire::SCHEDULER) nodes.push_back(*std::move(node));
  }
  return nodes;
}

}  // namespace slimps
