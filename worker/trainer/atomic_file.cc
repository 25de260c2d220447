#include "worker/trainer/atomic_file.h"

#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <system_error>

#include "absl/strings/str_cat.h"

namespace slimps {

namespace {

std::string DraftOf(const std::string& path) { return absl::StrCat(path, ".", getpid(), ".tmp"); }

absl::Status CannotWrite(const std::string& path, const std::string& why) {
  return absl::UnavailableError(absl::StrCat("cannot write ", path, ": ", why));
}

}  // namespace

absl::Status WriteFileAtomically(const std::string& path, std::string_view content) {
  const std::string draft = DraftOf(path);
  errno = 0;
  bool written = false;
  {
    std::ofstream out(draft, std::ios::binary);
    out.write(content.data(), static_cast<std::streamsize>(content.size()));
    written = static_cast<bool>(out.flush());
  }
  if (written && std::rename(draft.c_str(), path.c_str()) == 0) return absl::OkStatus();
  const std::string why = std::strerror(errno);
  std::remove(draft.c_str());
  return CannotWrite(path, why);
}

absl::Status CheckCanWrite(const std::string& path) {
  std::error_code ignored;
  if (std::filesystem::is_directory(path, ignored)) {
    return CannotWrite(path, std::strerror(EISDIR));
  }
  const std::string draft = DraftOf(path);
  errno = 0;
  std::ofstream out(draft, std::ios::binary);
  if (!out) return CannotWrite(path, std::strerror(errno));
  out.close();
  std::remove(draft.c_str());
  return absl::OkStatus();
}

}  // namespace slimps
