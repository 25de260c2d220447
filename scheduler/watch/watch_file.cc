// SPDX-License-Identifier: Apache-2.0
#include "scheduler/watch/watch_file.h"

#include <fcntl.h>
#include <limits.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string_view>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "proto/base/file.h"
#include "proto/base/status_copy.h"
#include "proto/base/status_macros.h"

namespace slimps {
namespace {

constexpr size_t kMaxFileBytes = 4096;
constexpr size_t kMinTokenLetters = 16;
constexpr size_t kMaxTokenLetters = 128;

// A token goes into an address as it is.
bool IsToken(std::string_view text) {
  return text.size() >= kMinTokenLetters && text.size() <= kMaxTokenLetters &&
         std::all_of(text.begin(), text.end(), [](char letter) {
           return absl::ascii_isalnum(static_cast<unsigned char>(letter)) || letter == '-' ||
                  letter == '_';
         });
}

// Whoever else could write the file would choose the token.
absl::StatusOr<std::string> ReadPrivate(const std::string& path) {
  const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (file < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("cannot read ", path, ": ", std::strerror(errno)));
  }
  const absl::Cleanup closed = [file] { close(file); };
  struct stat about {};
  if (fstat(file, &about) != 0 || !S_ISREG(about.st_mode) ||
      (about.st_uid != geteuid() && about.st_uid != 0) ||
      (about.st_mode & (S_IRWXG | S_IRWXO)) != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": expected a file of this user that others cannot reach: chmod 600"));
  }
  std::string content(kMaxFileBytes, '\0');
  const ssize_t got = read(file, content.data(), content.size());
  content.resize(got < 0 ? 0 : static_cast<size_t>(got));
  return content;
}

// Returns field 22 of /proc/self/stat; 0 if it is not there.
uint64_t Begun() {
  std::ifstream file("/proc/self/stat");
  const std::string line(std::istreambuf_iterator<char>(file), {});
  // The name before it may have any letters. The third field comes next.
  const size_t name_end = line.rfind(')');
  if (name_end == std::string::npos) return 0;
  const std::vector<std::string> fields =
      absl::StrSplit(line.substr(name_end + 1), ' ', absl::SkipEmpty());
  uint64_t begun = 0;
  return fields.size() > 19 && absl::SimpleAtoi(fields[19], &begun) ? begun : 0;
}

}  // namespace

absl::Status WriteWatchFile(const std::string& path, const std::string& address,
                            const std::string& token, const std::string& job_id) {
  char host[HOST_NAME_MAX + 1] = "";
  gethostname(host, sizeof(host) - 1);
  const nlohmann::json content = {{"address", absl::StrCat("http://", address)},
                                  {"token", token},
                                  {"job", job_id},
                                  {"pid", getpid()},
                                  {"host", host},
                                  {"begun", Begun()}};
  const std::string text =
      content.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
  return Prefixed(WriteFileDurably(path, text), "--watch_file");
}

FormerPage ReadWatchFile(const std::string& path, const std::string& job_id) {
  const absl::StatusOr<std::string> text = ReadPrivate(path);
  if (!text.ok()) return {};
  const nlohmann::json content =
      nlohmann::json::parse(*text, /*cb=*/nullptr, /*allow_exceptions=*/false);
  const auto text_of = [&content](const char* field) {
    const bool is_text =
        content.is_object() && content.contains(field) && content[field].is_string();
    return is_text ? content[field].get<std::string>() : std::string();
  };
  const std::string address = text_of("address");
  uint32_t port = 0;
  FormerPage page{.token = text_of("token")};
  if (text_of("job") != job_id || !IsToken(page.token) ||
      !absl::SimpleAtoi(address.substr(address.rfind(':') + 1), &port) || port > UINT16_MAX) {
    return {};
  }
  page.port = static_cast<uint16_t>(port);
  return page;
}

absl::StatusOr<std::string> ReadTokenFile(const std::string& path) {
  SLIMPS_ASSIGN_OR_RETURN(std::string token, ReadPrivate(path));
  absl::StripAsciiWhitespace(&token);
  if (IsToken(token)) return token;
  return absl::InvalidArgumentError(absl::StrCat(path, ": expected ", kMinTokenLetters, " to ",
                                                 kMaxTokenLetters, " letters, digits, - and _"));
}

}  // namespace slimps
